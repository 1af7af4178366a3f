package xds

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// The example in docs/xds.md has the limits that its text describes.
func TestDocumentsExample(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/xds.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "```json\n")
	example, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatal("no example")
	}
	tree, warnings, err := load(t, message(t, example))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := `default/eg/http.api-key: unit=DAY requests_per_unit=100000, shadow_mode: false, quota_mode: false
default/eg/http.api-key: unit=SECOND requests_per_unit=10, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 50
`
	if diff := cmp.Diff(want, rules.Dump(tree)); diff != "" {
		t.Error(diff)
	}
	domain := tree.Domain("default/eg/http")
	rule := domain.Match([]descriptors.Entry{{Key: "api-key", Value: "x"}})
	if diff := cmp.Diff(map[string]any{"owner": "team-api"}, rule.Metadata); diff != "" || domain.Charge != descriptors.ChargeAdmitted {
		t.Errorf("%v, charge %v", diff, domain.Charge)
	}
}
