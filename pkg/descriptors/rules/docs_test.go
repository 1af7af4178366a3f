package rules

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables of docs/rules.md")

const docs = "../../../docs/rules.md"

// The tables of docs/rules.md are written from the table of fields.
func TestDocs(t *testing.T) {
	got, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	want := string(got)
	for p := inFile; p <= inTable; p++ {
		begin, end := fmt.Sprintf("<!-- fields of %s -->\n", p), "\n<!-- end -->"
		before, rest, found := strings.Cut(want, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("docs/rules.md has no place for the table of %s: %q and %q", p, begin, end)
		}
		want = before + begin + reference(p) + end + after
	}
	if *update {
		if err := os.WriteFile(docs, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/rules.md differs from the table of fields; run go test ./pkg/descriptors/rules -update\n%s", diff)
	}
}

func reference(p place) string {
	rows := []string{"| key | value | default | meaning | note |", "|---|---|---|---|---|"}
	for i := range table {
		if f := &table[i]; f.in == p {
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s | %s |", f.Name, f.Type.Name, f.Default, f.What, f.Note))
		}
	}
	return strings.Join(rows, "\n")
}

// Each field has its type and its meaning, is part of the hash of rules, and is shown in
// a file of config/.
func TestEveryFieldIsDocumentedAndShown(t *testing.T) {
	files, err := filepath.Glob("../../../config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files in config/", err)
	}
	var all strings.Builder
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("\n" + string(content))
	}
	text := strings.ReplaceAll(all.String(), ":\n", ": \n")
	for i := range table {
		f := &table[i]
		if f.Type.Name == "" || f.What == "" {
			t.Errorf("%s in %s is not documented", f.Name, f.in)
		}
		if nested := f.Name == "descriptors" || f.in == inDescriptor && strings.HasPrefix(f.Name, "rate_limit") || f.in == inMatch || f.in == inMask; nested != (f.Type.Append == nil) {
			t.Errorf("%s in %s: the hash of rules must have each field once", f.Name, f.in)
		}
		if !regexp.MustCompile(`[^a-z_]` + f.Name + `: `).MatchString(text) {
			t.Errorf("no file in config/ has %s", f.Name)
		}
	}
}

// A name has one row for each place, and all rows of a name agree whether
// envoyproxy/ratelimit has the field.
func TestRowsOfOneNameDiffer(t *testing.T) {
	if len(table) > maxFields {
		t.Fatalf("%d fields, at most %d fit a reader", len(table), maxFields)
	}
	for name, rows := range byName {
		seen := map[place]bool{}
		for _, i := range rows {
			f := &table[i]
			if seen[f.in] || f.own != table[rows[0]].own {
				t.Errorf("%s stands twice in %s, or is our own in one place only", name, f.in)
			}
			seen[f.in] = true
		}
	}
}
