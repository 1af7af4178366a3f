package yaml_test

import (
	"fmt"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func load(tb testing.TB, texts ...yaml.Text) *descriptors.Tree {
	tb.Helper()
	tree, _, err := yaml.Load(texts, rules.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

// entries reads a request's descriptor: "user=a,path=/b".
func entries(s string) []descriptors.Entry {
	var list []descriptors.Entry
	for part := range strings.SplitSeq(s, ",") {
		k, v, _ := strings.Cut(part, "=")
		list = append(list, descriptors.Entry{Key: k, Value: v})
	}
	return list
}

// rulesOfD is a file with descriptors of domain d.
func rulesOfD(descriptors string) yaml.Text {
	return yaml.Text{Name: "rules.yaml", Content: []byte("domain: d\ndescriptors:\n" + descriptors)}
}

const limited = "rate_limit: {unit: minute, requests_per_unit: 1}"

// manyRules is a file of n rules for one key, as operators write them.
func manyRules(n int) yaml.Text {
	var b strings.Builder
	b.WriteString("domain: bench\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - key: user\n    value: v0-%d\n    rate_limit:\n      unit: minute\n      requests_per_unit: %d\n", i, i%1000)
	}
	return yaml.Text{Name: "bench.yaml", Content: []byte(b.String())}
}
