package docs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/offline"
	"example.org/rls/pkg/service"
)

const costsDoc = "docs/costs-known-later.md"

// TestCostsKnownLater plays what the page says of each of its examples.
func TestCostsKnownLater(t *testing.T) {
	type step struct {
		at          time.Duration
		id          string // of the request; "" for none
		hits        uint64
		over        bool
		remaining   int64
		retry       time.Duration
		reservation string
	}
	steps := map[string][]step{
		"fixed_window": { // a day that begins at the start
			{at: 0, hits: 150_000, over: true, retry: 24 * time.Hour},
			{at: 23 * time.Hour, over: true, retry: time.Hour},
			{at: 24 * time.Hour, remaining: 100_000},
		},
		"overdraft": {
			{at: 0, hits: 35},
			{at: 0, hits: 1, over: true, retry: 2700 * time.Millisecond},
			{at: 2600 * time.Millisecond, over: true, retry: 100 * time.Millisecond},
			{at: 2700 * time.Millisecond, remaining: 1},
		},
		"reserve": {
			{at: 0, id: "r1", hits: 4000, remaining: 96_000, reservation: "held"},
			{at: 0, id: "r2", hits: 97_000, over: true, retry: time.Minute},
			{at: time.Second, id: "r1", hits: 1250, remaining: 98_750, reservation: "settled"},
			{at: time.Second, id: "r1", hits: 1250, remaining: 98_750, reservation: "unchanged"},
		},
	}
	for _, p := range parts(t, costsDoc) {
		if p.lang != "yaml" {
			continue
		}
		text := "domain: shop\ndescriptors:\n  - key: user\n    " + p.text
		if strings.HasPrefix(p.text, "- key") {
			text = "domain: shop\ndescriptors:\n" + p.text
		}
		tree, warnings, err := yaml.Load([]yaml.Text{{Name: costsDoc, Content: []byte(text)}}, yaml.Options{})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s:%d: %v %v", costsDoc, p.line, err, warnings)
			continue
		}
		engine := offline.New(tree, 100)
		for i, s := range steps[p.heading] {
			engine.At(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC).Add(s.at))
			d := service.Descriptor{Entries: []descriptors.Entry{{Key: "user", Value: "ann"}}, Hits: &s.hits}
			if s.id != "" {
				d.Entries = append(d.Entries, descriptors.Entry{Key: "request_id", Value: s.id})
			}
			o, err := engine.Decide(&service.Request{Domain: "shop", Descriptors: []service.Descriptor{d}})
			if err != nil {
				t.Fatal(err)
			}
			is := o.Statuses[0]
			got := fmt.Sprint(o.Over, is.Remaining, is.Reservation)
			if want := fmt.Sprint(s.over, s.remaining, s.reservation); got != want || s.over && is.Shown.Is.RetryAfter != s.retry {
				t.Errorf("%s:%d: step %d: %s, retry after %v; want %s, %v", costsDoc, p.line, i, got, is.Shown.Is.RetryAfter, want, s.retry)
			}
		}
		if steps[p.heading] == nil {
			t.Errorf("%s:%d: nothing plays the example of %s", costsDoc, p.line, p.heading)
		}
		delete(steps, p.heading)
	}
	if len(steps) > 0 {
		t.Errorf("%s has no example for %v", costsDoc, steps)
	}
}
