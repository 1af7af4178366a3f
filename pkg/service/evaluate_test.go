package service_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
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

// message is the message of a.
func message(a *service.Request) *pb.RateLimitRequest {
	m := &pb.RateLimitRequest{Domain: a.Domain, HitsAddend: a.Hits}
	for _, asked := range a.Descriptors {
		d := &rlcommon.RateLimitDescriptor{IsNegativeHits: asked.Refund}
		for _, e := range asked.Entries {
			d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if asked.Hits != nil {
			d.HitsAddend = wrapperspb.UInt64(*asked.Hits)
		}
		if l := asked.Limit; l != nil {
			withLimit(l.RequestsPerUnit, int32(l.Unit), wrapperspb.UInt32(l.Multiplier), d)
		}
		m.Descriptors = append(m.Descriptors, d)
	}
	return m
}

// TestEvaluateDecidesLikeDecide sends the same requests as messages to one service
// and in plain types to another.
func TestEvaluateDecidesLikeDecide(t *testing.T) {
	messages, plain := start(t, evaluated), start(t, evaluated)
	keys := func(keys ...string) (list []service.Descriptor) {
		for _, key := range keys {
			list = append(list, service.Descriptor{Entries: []descriptors.Entry{{Key: key, Value: "x"}}})
		}
		return list
	}
	hits := func(n uint64, list []service.Descriptor) []service.Descriptor {
		list[0].Hits = &n
		return list
	}
	refund := func(list []service.Descriptor) []service.Descriptor {
		list[0].Refund = true
		return list
	}
	limit := func(l service.Override, list []service.Descriptor) []service.Descriptor {
		list[0].Limit = &l
		return list
	}
	for i, a := range []service.Request{
		{Domain: "d", Descriptors: keys("a")},
		{Domain: "d", Descriptors: keys("a", "b"), Hits: 2},
		{Domain: "d", Descriptors: hits(0, keys("a"))},
		{Domain: "d", Descriptors: hits(9, keys("a", "b"))},
		{Domain: "d", Descriptors: refund(hits(3, keys("a")))},
		{Domain: "d", Descriptors: keys("b")},
		{Domain: "d", Descriptors: keys("free", "none")},
		{Domain: "d", Descriptors: keys("trial")},
		{Domain: "d", Descriptors: keys("trial", "a")},
		{Domain: "d", Descriptors: keys("quota", "quota")},
		{Domain: "d", Descriptors: keys("quota")},
		{Domain: "d", Descriptors: keys("other", "a")},
		{Domain: "d", Descriptors: limit(service.Override{RequestsPerUnit: 2, Unit: descriptors.Hour, Multiplier: 1}, keys("a"))},
		{Domain: "d", Descriptors: limit(service.Override{RequestsPerUnit: 2, Unit: descriptors.Hour, Multiplier: 3}, keys("free"))},
		{Domain: "d", Descriptors: limit(service.Override{RequestsPerUnit: 2, Unit: 99, Multiplier: 1}, keys("a"))},
		{Domain: "nowhere", Descriptors: keys("a")},
		{Domain: "", Descriptors: keys("a")},
		{Domain: "d"},
		{Domain: "d", Descriptors: []service.Descriptor{{}}},
	} {
		want, wantErr := messages.try(message(&a))
		got, err := plain.service.Evaluate(t.Context(), &a)
		if fmt.Sprint(envoy.Error(err)) != fmt.Sprint(wantErr) {
			t.Fatalf("request %d: got %v, want %v", i, err, wantErr)
		}
		if err != nil {
			continue
		}
		if got.Over != (want.OverallCode == over) || len(got.Statuses) != len(want.Statuses) {
			t.Fatalf("request %d: got %+v, want %v", i, got, want)
		}
		for j, s := range got.Statuses {
			w := want.Statuses[j]
			wait := s.Is.Reset
			if s.Denied {
				wait = s.Is.RetryAfter
			}
			if s.Denied != (w.Code == over) {
				t.Errorf("request %d, status %d: got %+v, want %v", i, j, s, w)
			}
			if shown := w.CurrentLimit; shown != nil && (s.Remaining != int64(w.LimitRemaining) || s.Limit.Requests != shown.RequestsPerUnit ||
				s.Limit.Name != shown.Name || math.Ceil(wait.Seconds()) != w.DurationUntilReset.AsDuration().Seconds()) {
				t.Errorf("request %d, status %d: got %+v, want %v", i, j, s, w)
			}
		}
	}
}

func TestEvaluateDoesNotWaitInAQueue(t *testing.T) {
	r := start(t, evaluated)
	ask := &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "queue"}}}}}
	for i := range 50 {
		e, err := r.service.Evaluate(t.Context(), ask)
		if want := time.Duration(i) * 100 * time.Millisecond; err != nil || e.Over || e.Delay != want || e.Statuses[0].Is.Delay != want {
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
