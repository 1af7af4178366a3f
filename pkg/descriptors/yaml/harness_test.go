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
	tree, _ := loadWith(tb, rules.Options{}, texts...)
	return tree
}

// loadWith loads texts with options. The warnings are one a line.
func loadWith(tb testing.TB, opts rules.Options, texts ...yaml.Text) (tree *descriptors.Tree, warnings string) {
	tb.Helper()
	tree, all, err := yaml.Load(texts, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return tree, rules.Problems(all).Error()
}

func text(name, content string) yaml.Text {
	return yaml.Text{Name: name, Content: []byte(content)}
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
	return text("rules.yaml", "domain: d\ndescriptors:\n"+descriptors)
}

const limited = "rate_limit: {unit: minute, requests_per_unit: 1}"
