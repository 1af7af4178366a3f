// Package fields reads mappings of a document into Go values, each by a table of
// its keys, and makes a JSON Schema of the same table.
//
// The package promises that every problem is reported, with its position and with
// what would be right. Reading text is left to pkg/descriptors/yaml.
package fields

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// Field is one key of a mapping that is read into a T.
type Field[T any] struct {
	Name  string
	Other string // another spelling of Name that means the same; "" if there is none
	What  string // the meaning, for the schema
	// Required: a mapping without the key is a problem.
	Required bool
	Type     Type[T]
}

// Type is a kind of value, and the place in a T where such a value goes.
type Type[T any] struct {
	Schema Schema
	Set    func(r *Reader, t *T, v *rules.Value)
}

// Schema is a JSON Schema.
type Schema = map[string]any

// Reader collects the problems of a document. The zero Reader is ready for use.
type Reader struct {
	Problems rules.Problems
	path     []string // of the value that is read: "a", "[1]", "b"
}

// Problem reports a fault of the value that is read.
func (r *Reader) Problem(at descriptors.Position, format string, args ...any) {
	path := strings.ReplaceAll(strings.Join(r.path, "."), ".[", "[")
	r.Problems = append(r.Problems, rules.Problem{Position: at, Field: path, Message: fmt.Sprintf(format, args...)})
}

// ProblemOf reports a fault of the key name of the value that is read.
func (r *Reader) ProblemOf(name string, at descriptors.Position, format string, args ...any) {
	r.path = append(r.path, name)
	r.Problem(at, format, args...)
	r.path = r.path[:len(r.path)-1]
}

// read sets the field of t that name names to v.
func read[T any](r *Reader, f Type[T], t *T, name string, v *rules.Value) {
	r.path = append(r.path, name)
	if v.Kind == rules.Wrong {
		r.Problem(v.At, "%s", v.Text)
	} else {
		f.Set(r, t, v)
	}
	r.path = r.path[:len(r.path)-1]
}

// Mapping reads v, a mapping with the keys of table, into t.
func Mapping[T any](r *Reader, table []Field[T], t *T, v *rules.Value) {
	if v.Kind != rules.Map {
		r.Problem(v.At, "must be a mapping with %s, not %s", strings.Join(names(table), ", "), v.Kind)
		return
	}
	var seen [maxFields]int // of each field, the index of its value, or 0
	for i := 0; i < len(v.Content); i += 2 {
		name := &v.Content[i]
		id := index(table, name.Text)
		switch {
		case name.Kind == rules.Wrong:
			r.Problem(name.At, "%s", name.Text)
		case id < 0:
			r.ProblemOf(name.Text, name.At, "unknown key%s", spelling.Suggest(name.Text, names(table)))
		case seen[id] > 0 && !v.Merged(seen[id]-1):
			r.ProblemOf(name.Text, name.At, "the key is repeated; write it once")
		default:
			seen[id] = i + 1
		}
	}
	for id := range table {
		switch f := &table[id]; {
		case seen[id] > 0:
			read(r, f.Type, t, v.Content[seen[id]-1].Text, &v.Content[seen[id]])
		case f.Required:
			r.ProblemOf(f.Name, v.At, "is missing; %s", f.What)
		}
	}
}

// maxFields is the greatest number of fields of a table.
const maxFields = 16

// index is the index of the field that a key names, -1 if there is none.
func index[T any](table []Field[T], name string) int {
	return slices.IndexFunc(table, func(f Field[T]) bool { return name != "" && (f.Name == name || f.Other == name) })
}

func names[T any](table []Field[T]) []string {
	list := make([]string, len(table))
	for i := range table {
		list[i] = table[i].Name
	}
	return list
}

// Items reads the items of v, a list with at least one item, into the list that
// it returns. what names the items.
func Items[U any](r *Reader, v *rules.Value, what string, item Type[U]) []U {
	switch {
	case v.Kind != rules.List:
		r.Problem(v.At, "must be a list of %s, not %s", what, v.Kind)
		return nil
	case len(v.Content) == 0:
		r.Problem(v.At, "must not be empty; it is a list of %s", what)
	}
	list := make([]U, len(v.Content))
	for i := range v.Content {
		read(r, item, &list[i], "["+strconv.Itoa(i)+"]", &v.Content[i])
	}
	return list
}
