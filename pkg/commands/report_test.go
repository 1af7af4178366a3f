package commands

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors/rules"
)

// checked checks files, each a name and its content, in a new folder.
func checked(t *testing.T, files map[string]string) *report {
	t.Helper()
	t.Chdir(t.TempDir())
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(name, []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, name)
	}
	r, err := new(problemFlags).check(paths, rules.Options{Lint: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A hundred problems of a file are told in every format, and then how many more there are.
func TestManyProblems(t *testing.T) {
	const few = "domain: e\ndescriptors: [{key: ''}]\n"
	many := "domain: d\ndescriptors:\n" + strings.Repeat("- {key: '', rate_limit: {unit: eon, requests_per_unit: 1}}\n", 50_500)
	report := checked(t, map[string]string{"a.yaml": many, "b.yaml": few})
	for format, want := range map[string]string{
		"text": "a.yaml:52:32: 100900 more in this file are not shown\nb.yaml:2:21: key: must not be empty; a descriptor matches entries of one key\n" +
			report.Dir + ": files 2, domains 0, errors 101001\n",
		"json":   `"message":"100900 more in this file are not shown"`,
		"github": "::error file=a.yaml,line=52,col=32::100900 more in this file are not shown\n::error file=b.yaml,line=2,col=21::",
	} {
		var b strings.Builder
		if err := report.write(&b, &problemFlags{Format: format}); err != nil || !strings.Contains(b.String(), want) || strings.Count(b.String(), "a.yaml") > 103 || b.Len() > 50_000 {
			t.Errorf("%s: %v, %d bytes that end with %s", format, err, b.Len(), b.String()[max(0, b.Len()-400):])
		}
	}
}

// A hundred warnings of a file are told as well.
func TestManyWarnings(t *testing.T) {
	rules := "domain: d\ndescriptors:\n"
	for i := range 250 {
		rules += fmt.Sprintf("- {key: k%d, value: '', rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	report := checked(t, map[string]string{"a.yaml": rules})
	if len(report.Warnings) != 101 || report.Warnings[100].Message != "150 more in this file are not shown" {
		t.Fatal(report.Warnings)
	}
}
