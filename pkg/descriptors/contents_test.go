package descriptors_test

import (
	"sync"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
)

// The same rules have the same hash whatever the names of their files and the
// order in them; every difference changes the hash.
func TestHash(t *testing.T) {
	hash := func(files ...string) uint64 {
		var all []yaml.Text
		for i, text := range files {
			all = append(all, yaml.Text{Name: string(rune('a' + i)), Content: []byte(text)})
		}
		tree, _, err := yaml.Load(all, yaml.Options{MergeDomains: true})
		if err != nil {
			t.Fatal(err)
		}
		return tree.Hash()
	}
	const (
		x = "domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
		y = "- {key: y, rate_limit: {unit: hour, requests_per_unit: 2}}\n"
	)
	same := hash(x + y)
	for i, files := range [][]string{
		{"# a comment\n" + x + y},
		{"domain: d\ndescriptors:\n" + y, x},
		{x, "domain: d\ndescriptors:\n" + y},
	} {
		if got := hash(files...); got != same {
			t.Errorf("equal rules %d: %x, want %x", i, got, same)
		}
	}
	seen := map[uint64]string{}
	for _, text := range []string{
		"domain: d\n", "domain: e\n", x, x + y, "charge: admitted\n" + x, "on_error: deny\n" + x, "on_error: deny\ndomain: e\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, on_error: deny}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 2}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: minute, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: gcra}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: gcra, burst: 3}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, name: n}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: gcra, burst: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, unit_multiplier: 2}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, window: from_first_hit}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: month, requests_per_unit: 1, window: calendar}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: month, requests_per_unit: 1, window: calendar, timezone: Europe/Berlin}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: month, requests_per_unit: 1, window: calendar, month_starts: 2}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, overdraft: true}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, overdraft: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, overdraft: 1000}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, reserve: true}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, reserve: {ttl: 1h}}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, reserve: {on_expiry: give_back}}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: concurrency}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: concurrency, reserve: true}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: sliding_window}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: sliding_window, precision: 2}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, strategy: sliding_window, precision: 60}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, replaces: [{name: n}]}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unlimited: true, name: n}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unlimited: true}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limits: [{unit: hour, requests_per_unit: 1}, {unit: day, requests_per_unit: 1}]}\n",
		"domain: d\ndescriptors:\n- {key: x, match: {prefix: a}}\n", "domain: d\ndescriptors:\n- {key: x, match: {prefix: a, ignore_case: true}}\n",
		"domain: d\ndescriptors:\n- {key: x, match: {not: {prefix: a}}}\n", "domain: d\ndescriptors:\n- {key: x, match: {values: [a, b]}}\n", "domain: d\ndescriptors:\n- {key: x, match: {values: [a, c]}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: 1}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: '1'}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: [1, 2]}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: ['1 2']}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: b, c: d}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: 'b c:d'}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: ~}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: '<nil>'}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, mask: {ipv4: 24}}\n", "domain: d\ndescriptors:\n- {key: x, mask: {ipv6: 24}}\n",
		"domain: d\ndescriptors:\n- {key: x}\n", x + "- {key: x, value: v}\n", // takes requests with x=v
		"domain: d\ndescriptors:\n- {key: x, descriptors: [{key: y, rate_limit: {unit: hour, requests_per_unit: 1}}]}\n",
		"domain: d\ndescriptors:\n- {key: x, value_to_metric: true, descriptors: [{key: y, rate_limit: {unit: hour, requests_per_unit: 1}}]}\n",
		"domain: d\ndescriptors:\n- {key: x, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, thresholds: [{at: 80%}]}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, thresholds: [{at: 80%, delay: 1s}]}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, thresholds: [{at: 80%, metadata: {a: b}}]}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, thresholds: [{at: 80%, headers: {a: b}}]}}\n",
		"domain: d\ndescriptors:\n- {key: x, rate_limit: {unit: hour, requests_per_unit: 1, thresholds: [{at: 80%, response_headers: {a: b}}]}}\n",
		"domain: d\ndescriptors:\n- {key: x, metadata: {a: b}, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
	} {
		h := hash(text)
		if other, ok := seen[h]; ok {
			t.Errorf("one hash for\n%s and\n%s", other, text)
		}
		seen[h] = text
	}
	var none *descriptors.Tree
	if none.Hash() != 0 {
		t.Errorf("no rules: %x", none.Hash())
	}
}

// TestReadersOfATree: those who walk a tree at once, such as two who list its rules, change nothing in it.
func TestReadersOfATree(t *testing.T) {
	d := &descriptors.Domain{Name: "d"}
	tree := descriptors.NewTree(nil, d)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for _, d := range tree.Domains() {
				if n := len(d.Root().Children()); n != 0 {
					t.Errorf("%d children", n)
				}
			}
		})
	}
	readers.Wait()
}
