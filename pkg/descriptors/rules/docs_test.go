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

var update = flag.Bool("update", false, "write docs/rules.md")

const docs = "../../../docs/rules.md"

// headings are the sections of docs/rules.md, and a line below the heading.
var headings = [...][2]string{
	inFile:       {"The top of a file", ""},
	inDescriptor: {"A descriptor", ""},
	inLimit:      {"A limit", "It stands in `rate_limit`, `rate_limits`, `plans` and, without a policy or conditions, in `pools`."},
	inReplaces:   {"An item of replaces", ""},
	inLease:      {"The mapping lease", ""},
	inThreshold:  {"An item of thresholds", ""},
	inReserve:    {"The mapping reserve", ""},
	inMatch:      {"The mapping match", "It has one of these, and may have `ignore_case`."},
	inMask:       {"The mapping mask", ""},
	inTable:      {"The mapping table", "It has `file` or `url`; the name of the file alone will do in place of the mapping."},
}

// TestDocs: docs/rules.md is written from the table of fields.
func TestDocs(t *testing.T) {
	want := reference()
	if *update {
		if err := os.WriteFile(docs, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/rules.md differs from the table of fields; run go test ./pkg/descriptors/rules -update\n%s", diff)
	}
}

func reference() string {
	var b strings.Builder
	b.WriteString(`# Fields of rules

<!-- Written by go test ./pkg/descriptors/rules -update: change fields.go there instead. -->

Every field of a rule file. The guides say how they work together: [first rule](first-rule.md),
[match](match.md), [strategies](strategies.md), [plans and tables](plans.md), [pools](pools.md),
[before the limit](before-the-limit.md), [trying](trying.md). Editors show the conditions between
fields, from ` + "`rls schema`" + `.
`)
	for p, heading := range headings {
		fmt.Fprintf(&b, "\n## %s\n\n", heading[0])
		if heading[1] != "" {
			b.WriteString(heading[1] + "\n\n")
		}
		b.WriteString("| field | value | default | meaning |\n|---|---|---|---|\n")
		for i := range table {
			f := &table[i]
			if f.in != place(p) {
				continue
			}
			standard := f.Default
			switch {
			case f.Required:
				standard = "required"
			case f.Type.Name == boolean.Name:
				standard = "false"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Type.Name, standard, f.What)
		}
	}
	return b.String()
}

// TestDocsHaveEachFieldOnce reads the tables of docs/rules.md back: a section has each field of
// its place once, and no other.
func TestDocsHaveEachFieldOnce(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{} // of "place.name"
	in := ""
	for line := range strings.Lines(string(text)) {
		if title, isHeading := strings.CutPrefix(line, "## "); isHeading {
			in = strings.TrimSpace(title)
		}
		if cell := regexp.MustCompile("^\\| `([a-z0-9_]+)` \\|").FindStringSubmatch(line); cell != nil {
			times[in+"."+cell[1]]++
		}
	}
	for i := range table {
		f := &table[i]
		name := headings[f.in][0] + "." + f.Name
		if times[name] != 1 {
			t.Errorf("docs/rules.md has %s %d times", name, times[name])
		}
		delete(times, name)
	}
	for name := range times {
		t.Errorf("docs/rules.md has %s, which is no field", name)
	}
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
