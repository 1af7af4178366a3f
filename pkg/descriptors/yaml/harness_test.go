package yaml_test

import (
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
