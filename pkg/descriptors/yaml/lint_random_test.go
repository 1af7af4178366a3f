package yaml_test

import (
	"math/rand/v2"
	"testing"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// counted is what the lints of one descriptor should find in a document.
type counted struct{ empty, noLimit int }

func (c *counted) add(list any) {
	items, _ := list.([]any)
	for _, item := range items {
		d := item.(mapping)
		if d["value"] == "" {
			c.empty++
		}
		_, single := d["rate_limit"]
		_, several := d["rate_limits"]
		if below, _ := d["descriptors"].([]any); !single && !several && len(below) == 0 {
			c.noLimit++
		}
		c.add(d["descriptors"])
	}
}

// In random files without a fault the lints find neither more nor less than a
// second look at the documents does, and RemoveEmpty removes each empty value and
// nothing else.
func TestLintsOfRandomFiles(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(3, 5))}
	all := map[rules.Lint]int{}
	files := 0
	for files < 300 {
		document := g.file()
		content, err := loadDocument(t, document)
		if err != nil {
			continue
		}
		files++
		var want counted
		want.add(document["descriptors"])
		found := map[rules.Lint]int{}
		for _, w := range lints(t, yaml.Text{Name: "a.yaml", Content: []byte(content)}) {
			found[w.Lint]++
			all[w.Lint]++
		}
		if found[rules.EmptyValue] != want.empty || found[rules.NoLimit] != want.noLimit || found[rules.RegexpValue]+found[rules.OldShadow]+found[rules.DanglingLink] > 0 {
			t.Fatalf("want %+v, got %v in\n%s", want, found, content)
		}
		fixed, removed, _ := withoutEmpty(t, content)
		if removed != want.empty {
			t.Fatalf("removed %d of %d in\n%s", removed, want.empty, content)
		}
		if again, removed, _ := withoutEmpty(t, fixed); removed != 0 || again != fixed {
			t.Fatalf("there is more to remove in\n%s", fixed)
		}
	}
	for _, lint := range []rules.Lint{rules.EmptyValue, rules.NoLimit, rules.UnknownReplaces, rules.DuplicateLimit} {
		if all[lint] == 0 {
			t.Errorf("%s found nothing: the test tries too little", lint)
		}
	}
}
