package events_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
)

// TestDocs compares docs/events.md with the events: each kind stands there once with the fields that its
// events have, and each field once with its comment.
func TestDocs(t *testing.T) {
	testenv.Golden(t, "../../../docs/events.md", reference(t), "pkg/admin/events")
}

// ofEach is an event of each kind that a Log makes, by its kind.
func ofEach() map[string]events.Event {
	p := events.New(func() (none [descriptors.Policies]uint64) { return none })
	p.Started("v1", "redis")
	p.Drains()
	o := p.Failing(events.Server{Address: "10.0.0.1:6379", Role: "main"})
	o.Away(time.Now(), errRefused)
	o.Back(time.Now(), false)
	p.Loaded(events.InForce{}, []explain.Change{{}})
	p.Refused([]string{"wrong"})
	p.Renewed("gRPC", "CN=rls", time.Now())
	all := map[string]events.Event{}
	for _, e := range p.Newest(time.Time{}, events.Kept) {
		all[e.Kind] = e
	}
	return all
}

func reference(t *testing.T) string {
	file, err := parser.ParseFile(token.NewFileSet(), "events.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{} // of the fields, by their names in JSON
	var kinds, rows strings.Builder
	is := ofEach()
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.Field); ok && s.Tag != nil {
			tag, _ := strconv.Unquote(s.Tag.Value)
			name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			if s.Comment != nil {
				comments[name] = strings.TrimSpace(s.Comment.Text())
			}
		}
		return true
	})
	order := []string{"time", "kind", "text", "replica", "replicas"}
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok || s.Comment == nil || len(s.Values) != 1 {
			return true
		}
		text, _ := s.Values[0].(*ast.BasicLit)
		if text == nil || text.Kind != token.STRING {
			return true
		}
		kind, _ := strconv.Unquote(text.Value)
		e, made := is[kind]
		if !made && kind != events.Grant && kind != events.Reset && kind != events.Revoke {
			t.Errorf("no event of the kind %s is made", kind)
		}
		delete(is, kind)
		var own []string
		for _, name := range fieldsOf(t, e) {
			if slices.Contains(order[:3], name) {
				continue
			}
			own = append(own, "`"+name+"`")
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
		fmt.Fprintf(&kinds, "| `%s` | %s | %s |\n", kind, strings.TrimSpace(s.Comment.Text()), strings.Join(own, ", "))
		return true
	})
	for kind := range is {
		t.Errorf("the kind %s is no constant with a comment", kind)
	}
	for _, name := range order {
		if comments[name] == "" {
			t.Errorf("the field %s has no comment behind it in events.go", name)
		}
		fmt.Fprintf(&rows, "| `%s` | %s |\n", name, comments[name])
	}
	return `# Events

<!-- Written by go test ./pkg/admin/events -update: change the comments in events.go instead. -->

` + "`rls events`" + ` lists what happened to a process, and so does GET /v1/history: [ask a running service](admin.md#events).

| kind | when | fields besides time, kind and text |
|---|---|---|
` + kinds.String() + `
| field | meaning |
|---|---|
` + rows.String()
}

// fieldsOf are the names that an event has in JSON, sorted.
func fieldsOf(t *testing.T, e events.Event) []string {
	text, err := json.Marshal(e)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(fields))
}
