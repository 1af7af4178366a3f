package process

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// many are rules: n, of which the first one has another limit.
func many(t *testing.T, n, first int) *descriptors.Tree {
	t.Helper()
	var text strings.Builder
	text.WriteString("domain: shop\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {key: user, value: u%d, rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, first)
		first = 600
	}
	tree, _, err := yaml.Load([]yaml.Text{{Name: "shop.yaml", Content: []byte(text.String())}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestLimitsOfManyRules: the limits in force outlive a process in a bounded text, whose hashes tell the
// changes when there are too many limits. Without rules a process hands on those of the process before.
func TestLimitsOfManyRules(t *testing.T) {
	for n, want := range map[int]string{
		10:     "[shop.user_u0 600 → 60 per minute (shop.yaml:3)]",
		30_000: "[shop.user_u0 changed to 60 per minute, fixed_window (shop.yaml:3)]",
	} {
		var old inForce
		first, next := many(t, n, 600), many(t, n, 60)
		if got := old.changed(nil, first); got != nil {
			t.Errorf("the first process: %v", got)
		}
		kept := old.Merge(nil, 0)
		shared := inForce{}
		shared.Recall(kept)
		again := shared.Merge(kept, 0)
		var file, handed bytes.Buffer
		filed, idle := inForce{}, inForce{}
		if err := old.Save(&file); err != nil || idle.Load(&file) != nil || idle.Save(&handed) != nil || filed.Load(&handed) != nil {
			t.Fatal(err)
		}
		if len(kept) > maxLimits || !bytes.Equal(again, kept) {
			t.Errorf("%d rules: %d bytes, then %d", n, len(kept), len(again))
		}
		for _, f := range []*inForce{&shared, &filed} {
			if got := fmt.Sprint(f.changed(nil, next)); got != want {
				t.Errorf("%d rules: got %s, want %s", n, got, want)
			}
		}
		if got := fmt.Sprint(old.changed(first, next)); !strings.HasPrefix(got, "[shop.user_u0 600 → 60 ") {
			t.Errorf("%d rules: a reload: %s", n, got)
		}
		if older := old.Merge(shared.Merge(nil, 0), 0); !bytes.Equal(older, old.kept()) {
			t.Errorf("%d rules: the earlier limits replace the later ones", n)
		}
		if again := testing.AllocsPerRun(10, func() { _ = old.Save(&bytes.Buffer{}) }); again > 3 {
			t.Errorf("%d rules: %v allocations to save them again", n, again)
		}
	}
}
