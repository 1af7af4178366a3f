package descriptors_test

import (
	"strings"
	"testing"

	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestSuggest(t *testing.T) {
	domain := load(t, yamlFile(`- key: plan
  value: free
  descriptors:
  - key: user
    `+limited+`
    descriptors: [{key: route, value: /login, `+limited+`}]
- key: plan
  value: gold
  descriptors: [{key: user, `+limited+`}]
- {key: plain, `+limited+`}
- key: tenant
  descriptors: [{key: path, value: "/v1/*", `+limited+`}]
- key: "x-*"
  value: on
  `+limited+`
- key: group
  value: "a,b"
  `+limited+`
- key: far
  descriptors: [{key: one, descriptors: [{key: two, descriptors: [{key: three, `+limited+`}]}]}]
`)).Domain("d")
	for request, want := range map[string]string{
		"plan=free,usr=ann":              "plan=free,user=ann",                    // a key
		"plan=fre,user=ann":              "plan=free,user=ann",                    // a value
		"Plan=free,user=ann":             "plan=free,user=ann",                    // upper case
		"user=ann":                       "plan=free,user=ann plan=gold,user=ann", // the depth above
		"plan=free":                      "plan=free,user=…",                      // the depth below
		"plan":                           "plan=free,user=… plan=gold,user=…",
		"plan=free,route=/login":         "plan=free,user=…,route=/login",
		"plan=free,user=a,foo=b":         "plan=free,user=a", // one too many
		"foo=b,plan=gold,user=a":         "plan=gold,user=a",
		"plan=free,user=a,route=/logn":   "plan=free,user=a,route=/login",
		"path=/v1/x":                     "tenant=…,path=/v1/x",
		"tenant=t":                       "tenant=t,path=/v1/*",
		"x-y=of":                         "x-y=on",
		"user=ann,plan=free":             "plan=free,user=ann",
		"grup=x":                         "",
		`[{"key":"grup","value":"a,b"}]`: `[{"key":"group","value":"a,b"}]`,
		"three=3":                        "", // three depths are missing
		"plan=silver,user=ann":           "plan=free,user=ann plan=gold,user=ann",
		"nothing=like":                   "",
	} {
		entries, err := ask.ParseDescriptor(request)
		if err != nil {
			t.Fatal(err)
		}
		suggestions := domain.Suggest(entries, 1000)
		if got := strings.Join(suggestions, " "); got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
		for _, s := range suggestions { // as a person pastes it
			if entries, err = ask.ParseDescriptor(s); err != nil || domain.Match(entries) == nil {
				t.Errorf("%s: %s has no limit, %v", request, s, err)
			}
		}
	}
	if got := domain.Suggest([]descriptors.Entry{{Key: "user", Value: "ann"}}, 2); len(got) != 0 {
		t.Errorf("after two looks: got %v", got)
	}
}

// Of many rules that are as near the first ones are suggested.
func TestSuggestionsOfMany(t *testing.T) {
	domain := load(t, manyRules(5000)).Domain("bench")
	got := domain.Suggest([]descriptors.Entry{{Key: "user", Value: "v0_12"}}, 10_000)
	if want := "user=v0-12"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	got = domain.Suggest([]descriptors.Entry{{Key: "user", Value: "v0-12"}, {Key: "path", Value: "/"}}, 10_000)
	if want := "user=v0-12"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestSuggestDomain(t *testing.T) {
	tree := load(t, yaml.Text{Name: "a", Content: []byte("domain: tree\ndescriptors: [{key: a, " + limited + "}]")},
		yaml.Text{Name: "b", Content: []byte("domain: shop\ndescriptors: [{key: a, " + limited + "}]")})
	for name, want := range map[string]string{"tre": "tree", "Shop": "shop", "forest": ""} {
		if got := strings.Join(tree.Suggest(name), " "); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if got := (*descriptors.Tree)(nil).Suggest("tre"); got != nil {
		t.Errorf("without rules: got %v", got)
	}
}

func BenchmarkSuggest(b *testing.B) {
	domain := load(b, manyRules(100_000)).Domain("bench")
	for b.Loop() {
		domain.Suggest([]descriptors.Entry{{Key: "user", Value: "w"}}, 200_000)
	}
}
