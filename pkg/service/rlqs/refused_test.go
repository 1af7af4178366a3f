package rlqs_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// used is how many hits of a limit are used.
func (w *world) used(key, value string) int64 {
	w.t.Helper()
	entries := []descriptors.Entry{{Key: key, Value: value}}
	seen, err := operate.New(w.replicas[0].service, strings.Clone).Inspect(w.t.Context(), &operate.Question{Request: service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: entries}}}}, operate.Look)
	if err != nil {
		w.t.Fatal(err)
	}
	return seen.Descriptors[0].Limits[0].Count
}

// TestABucketThatCannotBeDecided is denied alone, and the stream goes on.
func TestABucketThatCannotBeDecided(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		many := usage(0, 1, 0)
		for i := range 9 { // one more than REQUEST_MAX_ENTRIES
			many.BucketId.Bucket[fmt.Sprint(i)] = "v"
		}
		s := w.stream(0)
		if got := s.report(usage(0, 1, 0, "hour", "v"), many, usage(0, 1, 0, "second", "v")); got != "deny 15s, 99+1/24h0m0s 15s, 100+100/1s 15s" {
			t.Error(got)
		}
		pass(5 * time.Second)
		if got := s.report(many, usage(5*time.Second, 40, 0, "hour", "v")); got != "deny 15s, deny 15s, 59+1/24h0m0s 15s" {
			t.Errorf("later: %s", got)
		}
		if _, buckets, _ := w.replicas[0].quotas.Counts(); buckets != 2 {
			t.Errorf("%d buckets are kept", buckets)
		}
	})
}

// TestLongValues: each has a limit of its own, also if they begin with the same 60 KiB.
func TestLongValues(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		s, long := w.stream(0), strings.Repeat("x", 60<<10)
		for _, value := range []string{long, long + "y"} {
			if got := s.report(usage(0, 1, 0, "hour", value)); got != "99+1/24h0m0s 15s" {
				t.Error(got)
			}
		}
		pass(5 * time.Second)
		if got := s.report(usage(5*time.Second, 99, 0, "hour", long), usage(5*time.Second, 9, 0, "hour", long+"y")); got != "deny 15s, deny 15s, 90+1/24h0m0s 15s" {
			t.Errorf("later: %s", got)
		}
	})
}

// TestIDsThatAreNotText: a bucket whose id is not UTF-8 is charged and counted, and no answer names
// it: Envoy could not read the answer.
func TestIDsThatAreNotText(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		stream := &wire{ctx: t.Context()}
		for _, elapsed := range []time.Duration{0, 5 * time.Second} {
			m, err := proto.Marshal(reports("d", usage(elapsed, 3, 0, "hour", "@"), usage(elapsed, 1, 0, "hour", "v"), usage(elapsed, 7, 0, "@", "v")))
			if err != nil {
				t.Fatal(err)
			}
			stream.messages = append(stream.messages, bytes.ReplaceAll(m, []byte("@"), []byte("\xff")))
		}
		if err := w.replicas[0].quotas.StreamRateLimitQuotas(stream); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range stream.replies {
			for _, a := range m.BucketAction {
				got = append(got, a.BucketId.Bucket["hour"]+": "+text(a))
			}
		}
		if want := "v: 99+1/24h0m0s 15s|v: deny 15s|v: 98+1/24h0m0s 15s"; strings.Join(got, "|") != want {
			t.Errorf("%q, want %q", got, want)
		}
		if used, other, n := w.used("hour", "\xff"), w.used("hour", "\uFFFD"), w.replicas[0].quotas.Refused(); used != 6 || other != 0 || n != 4 {
			t.Errorf("%d hits and %d of another value are charged, %d buckets refused", used, other, n)
		}
	})
}

// TestAnEmptyBucket: Envoy makes one of a header with an empty value, and reports it beside others.
func TestAnEmptyBucket(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		s := w.stream(0)
		for _, all := range [][]*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{usage(0, 1, 0), usage(0, 1, 0, "second", "v")}, {usage(0, 1, 0, "second", "w"), usage(0, 1, 0)},
		} {
			if got := s.report(all...); got != "100+100/1s 15s" {
				t.Error(got)
			}
		}
		s.report(usage(5*time.Second, 1, 0))
		if n := w.replicas[0].quotas.Refused(); n != 3 || len(s.err) > 0 {
			t.Errorf("%d empty buckets, %d errors", n, len(s.err))
		}
	})
}

// TestBucketsWithoutARule: they pass, and are not kept.
func TestBucketsWithoutARule(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		s := w.stream(0)
		for _, elapsed := range []time.Duration{0, 5 * time.Second} {
			if got := s.report(usage(elapsed, 1, 0, "other", "v")); got != "allow 1m0s" {
				t.Error(got)
			}
			if _, buckets, _ := w.replicas[0].quotas.Counts(); buckets != 0 {
				t.Errorf("%d buckets are kept", buckets)
			}
			pass(5 * time.Second)
		}
		w.load(rules + "  - {key: other, rate_limit: {unit: second, requests_per_unit: 10}}\n")
		if got := s.report(usage(5*time.Second, 1, 0, "other", "v")); got != "10+10/1s 15s" {
			t.Errorf("with a rule: %s", got)
		}
	})
}

// TestBucketsBeyondAStream: buckets with an assignment keep it. Further ones are denied until the next
// report, and abandoned once nobody asks; they are charged and not kept.
func TestBucketsBeyondAStream(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		q := w.replicas[0].quotas
		q.MaxBytes = proto.Size(usage(0, 1, 0, "hour", "1")) * 10 // the reports of ten buckets
		s := w.stream(0)
		var all []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage
		for i := range 9 {
			all = append(all, usage(0, 1, 0, "hour", fmt.Sprint(i)))
		}
		s.report(all...)
		first := all[0]
		first.TimeElapsed.Seconds = 5
		pass(5 * time.Second)
		got := s.report(usage(0, 1, 0, "hour", strings.Repeat("x", 60<<10)), usage(0, 1, 0, "hour", "a"), usage(0, 3, 0, "hour", "b"), usage(0, 1, 0, "other", "c"), first)
		if want := "deny 6s, 99+1/24h0m0s 15s, deny 6s, allow 1m0s, deny 15s, 98+1/24h0m0s 15s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if used := w.used("hour", "b"); used != 3 {
			t.Errorf("%d hits are charged, want 3", used)
		}
		pass(5 * time.Second)
		if got := s.report(usage(5*time.Second, 0, 8, "hour", "b")); got != "deny 6s" {
			t.Errorf("asked for again: %s", got)
		}
		pass(5 * time.Second)
		if got := s.report(usage(5*time.Second, 0, 0, "hour", "b")); got != "abandon" {
			t.Errorf("not asked for again: %s", got)
		}
		if _, buckets, _ := q.Counts(); buckets != 10 {
			t.Errorf("%d buckets are kept, want 10", buckets)
		}
		pass(16 * time.Second) // nobody reports the ten
		s.pushed()
		if got := s.report(usage(5*time.Second, 1, 0, "hour", "b")); !strings.HasSuffix(got, "96+1/24h0m0s 15s") {
			t.Errorf("there is room again: %s", got)
		}
	})
}

// TestBucketsOfAllStreams: a process keeps up to 250,000. One that was kept for a stream that ended has
// its place on the next stream, or makes room after two intervals.
func TestBucketsOfAllStreams(t *testing.T) {
	in(t, func(t *testing.T) {
		const most = 250_000
		w := start(t, 1, rules)
		q := w.replicas[0].quotas
		if err := q.StreamRateLimitQuotas(&wire{ctx: t.Context(), messages: [][]byte{message(t, "other", 10_000)}}); err != nil {
			t.Fatal(err) // buckets without a rule leave nothing
		}
		ends := make([]func(), 4)
		for i, c := range []struct{ reported, kept int }{{85_000, 85_000}, {85_000, 170_000}, {85_000, most}, {10_000, most - 75_000}} {
			pause := make(chan struct{})
			ends[i] = sync.OnceFunc(func() { close(pause) })
			defer ends[i]()
			if i == 3 {
				ends[0]()
				synctest.Wait()
			}
			go q.StreamRateLimitQuotas(&wire{ctx: t.Context(), messages: [][]byte{message(t, "free", c.reported)}, pause: pause}) //nolint:errcheck // ends with the pause
			synctest.Wait()
			if _, buckets, _ := q.Counts(); buckets != c.kept {
				t.Errorf("%d buckets, want %d", buckets, c.kept)
			}
		}
		s := w.stream(0)
		if got := s.report(usage(0, 1, 0, "second", "v"), usage(0, 1, 0, "free", "v"), usage(0, 1, 0, "other", "v")); got != "deny 6s, allow 15s, allow 1m0s" {
			t.Errorf("beyond them: %s", got)
		}
		ends[1]()
		pass(9500 * time.Millisecond)
		if got := s.report(usage(5*time.Second, 1, 0, "second", "v")); got != "100+100/1s 15s" {
			t.Errorf("there is room again: %s", got)
		}
	})
}
