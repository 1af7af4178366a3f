package service_test

import (
	"testing"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

const evaluated = `
domain: d
descriptors:
  - {key: a, rate_limit: {name: ten, unit: minute, requests_per_unit: 10}}
  - {key: b, rate_limits: [{unit: hour, requests_per_unit: 5}, {unit: second, requests_per_unit: 2, strategy: gcra, burst: 2}]}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: queue, rate_limit: {unit: second, requests_per_unit: 10, strategy: leaky_bucket, burst: 1, max_delay: 10s}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: other, rate_limit: {replaces: [{name: ten}], unit: minute, requests_per_unit: 100}}
`

func TestEvaluateDoesNotWaitInAQueue(t *testing.T) {
	r := start(t, evaluated)
	ask := &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "queue"}}}}}
	for i := range 50 {
		e, err := r.service.Evaluate(t.Context(), ask)
		if want := time.Duration(i) * 100 * time.Millisecond; err != nil || e.Over || e.Delay != want || e.Statuses[0].Shown.Is.Delay != want {
			t.Fatalf("hit %d: %+v, %v; want a delay of %v", i, e, err, want)
		}
	}
}

// TestTheHeadlineIsWhatHeadersDescribe: -1 without an enforced limit.
func TestTheHeadlineIsWhatHeadersDescribe(t *testing.T) {
	r := start(t, evaluated)
	for _, c := range []struct {
		keys []string
		want int
	}{{[]string{"none", "a", "b"}, 2}, {[]string{"trial", "free"}, -1}, {[]string{"quota", "a"}, 0}} {
		var a service.Request
		a.Domain = "d"
		for _, key := range c.keys {
			a.Descriptors = append(a.Descriptors, service.Descriptor{Entries: []descriptors.Entry{{Key: key}}})
		}
		if e, err := r.service.Evaluate(t.Context(), &a); err != nil || e.Headline != c.want {
			t.Errorf("%v: headline %d, %v; want %d", c.keys, e.Headline, err, c.want)
		}
	}
}
