package docs_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
)

const strategiesDoc = "docs/strategies.md"

func TestEveryStrategyHasASection(t *testing.T) {
	doc := readDoc(t, strategiesDoc)
	for _, name := range algorithms.Names() {
		if !strings.Contains(doc, "\n## "+name+"\n") || !strings.Contains(doc, "| [`"+name+"`](#"+name+")") {
			t.Errorf("%s has no section, or no row in the table, for %s", strategiesDoc, name)
		}
	}
}

// TestTimelines sends the hits of each table whose first column is "at" to the rule
// above it, and compares the decisions.
func TestTimelines(t *testing.T) {
	var rule *part
	played := map[string]bool{}
	for _, p := range parts(t, strategiesDoc) {
		switch {
		case p.lang == "yaml":
			rule = p
		case p.isTable() && strings.HasPrefix(p.rows[0][0], "at"):
			played[p.heading] = true
			t.Run(fmt.Sprintf("%s line %d", p.heading, p.line), func(t *testing.T) { playTable(t, rule, p) })
		}
	}
	for _, name := range algorithms.Names() {
		if !played[name] {
			t.Errorf("%s has no timeline for %s", strategiesDoc, name)
		}
	}
}

// loadRule returns the limit of a rule file with text, which begins with
// rate_limit:, as the only descriptor (user) of the domain shop.
func loadRule(t *testing.T, text string) (*algorithms.Limit, descriptors.Charge) {
	t.Helper()
	text = "domain: shop\n" + strings.Replace(text, "rate_limit:", "descriptors:\n  - key: user\n    rate_limit:", 1)
	tree, warnings, err := yaml.Load([]yaml.Text{{Name: strategiesDoc, Content: []byte(text)}}, yaml.Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %v in\n%s", err, warnings, text)
	}
	domain := tree.Domain("shop")
	return domain.Match([]descriptors.Entry{{Key: "user", Value: "alice"}}).Limits[0].Limit, domain.Charge
}

func playTable(t *testing.T, rule, table *part) {
	limit, charge := loadRule(t, rule.text)
	store, err := memory.New(memory.Options{MaxKeys: 10})
	if err != nil {
		t.Fatal(err)
	}
	columns := table.rows[0]
	columns[0], _, _ = strings.Cut(columns[0], " ") // at (UTC)
	for _, column := range columns {                // the one without a name has remarks
		if !slices.Contains([]string{"at", "hits", "pass", "remaining", "reset", "retry-after", "delay", ""}, column) {
			t.Errorf("%s:%d: nothing compares the column %q", strategiesDoc, table.line, column)
		}
	}
	if len(table.rows) < 2 {
		t.Fatalf("%s:%d: the table has no rows", strategiesDoc, table.line)
	}
	var key string
	for i, row := range table.rows[1:] {
		want := map[string]string{}
		for j, column := range columns {
			want[column] = row[j]
		}
		var d algorithms.Decision
		passed := 0
		hits, c := parseHits(t, want["hits"])
		c.Now, c.AdmittedOnly, c.Patience = parseTime(t, want["at"]), charge == descriptors.ChargeAdmitted, time.Hour.Microseconds()
		for range hits {
			b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
			limit.Plan(&b.Ops[0], algorithms.Identity{ID: []byte("shop|user=alice")}, c)
			key = b.Ops[0].Key
			if err := store.Apply(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			if d = limit.Judge(&b.Ops[0], &b.Replies[0]); d.Allowed {
				passed++
			}
		}
		got := map[string]string{
			"pass": strconv.Itoa(passed), "remaining": strconv.FormatInt(d.Remaining, 10),
			"reset": d.Reset.String(), "retry-after": d.RetryAfter.String(), "delay": d.Delay.String(),
		}
		for column, is := range got {
			if says := normal(want[column]); says != "" && says != is {
				t.Errorf("%s:%d: at %s %s is %s, the table says %s", strategiesDoc, table.line+2+i, want["at"], column, is, says)
			}
		}
	}
	if stem := strings.TrimRight(key, "0123456789"); !strings.Contains(readDoc(t, strategiesDoc), "`"+stem) {
		t.Errorf("the key %s is not in %s", key, strategiesDoc)
	}
}

// normal returns a duration as time.Duration prints it, and any other cell as it
// is.
func normal(cell string) string {
	if d, err := time.ParseDuration(cell); err == nil && cell != "0" {
		return d.String()
	}
	return cell
}

// parseHits understands "N", "N of COST" and "refund COST".
func parseHits(t *testing.T, cell string) (hits int, c algorithms.Charge) {
	t.Helper()
	words := strings.Fields(cell)
	hits, c.Cost = 1, 1
	var err error
	switch {
	case len(words) == 2 && words[0] == "refund":
		c.Refund = true
		c.Cost, err = strconv.ParseUint(words[1], 10, 64)
	case len(words) == 3 && words[1] == "of":
		if c.Cost, err = strconv.ParseUint(words[2], 10, 64); err == nil {
			hits, err = strconv.Atoi(words[0])
		}
	default:
		hits, err = strconv.Atoi(cell)
	}
	if err != nil {
		t.Fatalf("hits %q: %v", cell, err)
	}
	return hits, c
}

// parseTime returns a time, or a time of day on one fixed day, in µs since the epoch.
func parseTime(t *testing.T, cell string) int64 {
	t.Helper()
	if !strings.Contains(cell, " ") {
		cell = "2026-11-21 " + cell
	}
	at, err := time.Parse(time.DateTime, cell)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

// TestStrategiesAreNamedInOrder: the table has all strategies, in their order.
func TestStrategiesAreNamedInOrder(t *testing.T) {
	for _, p := range parts(t, strategiesDoc) {
		if !p.isTable() || p.rows[0][0] != "strategy" {
			continue
		}
		var names []string
		for _, row := range p.rows[1:] {
			_, name, _ := strings.Cut(row[0], "`")
			name, _, _ = strings.Cut(name, "`")
			names = append(names, name)
		}
		if !slices.Equal(names, algorithms.Names()) {
			t.Errorf("%s:%d has %v, want %v", strategiesDoc, p.line, names, algorithms.Names())
		}
		return
	}
	t.Errorf("%s has no table of strategies", strategiesDoc)
}
