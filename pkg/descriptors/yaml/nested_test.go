package yaml_test

import (
	"fmt"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// Values that stand too deep in each other are a problem with a place, however
// they came there, and are found in time that grows with the file.
func TestDepthIsBounded(t *testing.T) {
	nested := func(open, middle, end string) func(int) string {
		return func(n int) string { return strings.Repeat(open, n) + middle + strings.Repeat(end, n) }
	}
	inBraces := nested("{key: a, descriptors: [", "{key: b, "+limited+"}", "]}")
	descriptors := func(n int) string { return "domain: d\ndescriptors: [" + inBraces(n-1) + "]\n" }
	// Each anchor adds three levels to the one before, so that the text stays flat.
	aliases := func(n int) string {
		var b strings.Builder
		b.WriteString("domain: d\nkey: [&a0 {key: a}")
		for i := range n / 3 {
			fmt.Fprintf(&b, ", &a%d {key: a, descriptors: [{key: a, descriptors: [{key: a, descriptors: [*a%d]}]}]}", i+1, i)
		}
		return b.String() + fmt.Sprintf("]\ndescriptors: [*a%d]\n", n/3)
	}
	metadata := func(n int) string {
		return "domain: d\ndescriptors: [{key: a, " + limited + ", metadata: {x: " + nested("[", "1", "]")(n-1) + "}}]\n"
	}
	for _, tt := range []struct {
		name string
		text string
		want string // the end of the only problem, "" for none
	}{
		{"descriptors", descriptors(1000), ""},
		{"too many descriptors", descriptors(1001), "descriptors: descriptors stand more than 1000 deep in each other"},
		{"too many descriptors by aliases", aliases(1002), "descriptors: descriptors stand more than 1000 deep in each other"},
		{"metadata", metadata(999), ""},
		{"too deep metadata", metadata(1001), "metadata: values stand more than 1000 deep in each other"},
		{"far too many brackets", "domain: " + nested("[", "", "]")(9000), "values stand more than 3000 deep in each other"},
		{"more brackets than the parser takes", "domain: " + nested("[", "", "]")(100_000), "not valid YAML: exceeded max depth of 10000"},
		{"far too many items", nested("- ", "a", "")(9000), "values stand more than 3000 deep in each other"},
	} {
		_, _, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(tt.text)}}, rules.Options{})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %.200v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.HasSuffix(firstLine(err), ": "+tt.want) || !strings.HasPrefix(err.Error(), "a.yaml:")):
			t.Errorf("%s: got %.200v, want %s", tt.name, err, tt.want)
		}
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
