package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/split"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service/envoy"
)

// partly is a store with a server that is away: it does not decide operations whose
// key contains "away", and lets the store below decide the others.
type partly struct{ backends.Store }

func (s partly) Apply(ctx context.Context, b *backends.Batch) error {
	away := fmt.Errorf("server 192.0.2.7:6379: %w", backends.ErrUnavailable)
	here := backends.Batch{AllOrNothing: b.AllOrNothing}
	var at []int
	for i := range b.Ops {
		if strings.Contains(b.Ops[i].Key, "away") {
			b.Replies[i].Err = away
		} else {
			here.Ops, at = append(here.Ops, b.Ops[i]), append(at, i)
		}
	}
	here.Replies = make([]backends.Reply, len(here.Ops))
	if err := s.Store.Apply(ctx, &here); err != nil {
		return b.Fail(err)
	}
	for j, i := range at {
		b.Replies[i] = here.Replies[j]
	}
	if len(at) < len(b.Ops) {
		return away
	}
	return nil
}

// TestAStoreThatDecidesAPart: a request fails only if an operation that the
// store left undecided could deny it. Each descriptor names a rule and, in its
// value, whether the store decides.
func TestAStoreThatDecidesAPart(t *testing.T) {
	const unknown, unavailable = pb.RateLimitResponse_UNKNOWN, pb.RateLimitResponse_Code(-1)
	rules := `
domain: d
descriptors:
  - {key: firm, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: full, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: used, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
`
	const here, away = "here", "away"
	shadowMode := func(c *config) { c.ShadowMode = true }
	quotaMode := func(c *config) { c.QuotaMode = true }
	for _, tt := range []struct {
		name    string
		change  func(*config)
		ask     []string // rule and value in turn
		want    pb.RateLimitResponse_Code
		of      []pb.RateLimitResponse_Code
		counted bool // as an error of the store
	}{
		{"nothing is missing", nil, []string{"firm", here}, ok, []pb.RateLimitResponse_Code{ok}, false},
		{"an enforced limit is missing", nil, []string{"firm", here, "firm", away}, unavailable, nil, true},
		{"an enforced limit is missing and another one denies", nil, []string{"firm", away, "full", here}, over, []pb.RateLimitResponse_Code{unknown, over}, true},
		{"a limit in shadow mode is missing", nil, []string{"shadow", away, "firm", here}, ok, []pb.RateLimitResponse_Code{unknown, ok}, true},
		{"one quota passes and the other is missing", nil, []string{"quota", here, "quota", away}, ok, []pb.RateLimitResponse_Code{ok, unknown}, true},
		{"one quota is used up and the other is missing", nil, []string{"used", here, "quota", away}, unavailable, nil, true},
		{"a quota is missing and an enforced limit denies", nil, []string{"quota", away, "full", here}, over, []pb.RateLimitResponse_Code{unknown, over}, true},
		{"SHADOW_MODE", shadowMode, []string{"firm", away, "full", here}, ok, []pb.RateLimitResponse_Code{unknown, over}, true},
		{"QUOTA_MODE, one passes", quotaMode, []string{"firm", here, "firm", away}, ok, []pb.RateLimitResponse_Code{ok, unknown}, true},
		{"QUOTA_MODE, one has no limit", quotaMode, []string{"nothing", here, "firm", away}, ok, []pb.RateLimitResponse_Code{ok, unknown}, true},
		{"QUOTA_MODE, none passes", quotaMode, []string{"full", here, "firm", away}, unavailable, nil, true},
	} {
		for _, charge := range []string{"always", "admitted"} {
			t.Run(tt.name+", charge "+charge, func(t *testing.T) {
				var m *metrics.Metrics
				changes := []func(*config){measure(t, &m), func(c *config) {
					c.Store = partly{c.Store}
					c.Reply = envoy.Reply{RateLimit: reference, IETF: true, Metadata: true, ProblemBody: true}
				}}
				if tt.change != nil {
					changes = append(changes, tt.change)
				}
				r := start(t, "charge: "+charge+rules, changes...)
				var asked []*rlcommon.RateLimitDescriptor
				for pair := range slices.Chunk(tt.ask, 2) {
					asked = append(asked, desc(pair...))
				}
				resp, err := r.try(request(asked...))
				switch {
				case tt.want == unavailable:
					if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "192.0.2.7:6379") {
						t.Errorf("%v, %v; want UNAVAILABLE with the server's name", resp, err)
					}
				case err != nil || resp.OverallCode != tt.want:
					t.Errorf("%v, %v; want %v", resp, err, tt.want)
				default:
					for i, s := range resp.Statuses {
						if s.Code != tt.of[i] || s.Code == unknown && (s.CurrentLimit != nil || s.DurationUntilReset != nil) {
							t.Errorf("status %d: %v, want %v", i, s, tt.of[i])
						}
					}
				}
				errors := counted(t, m, "ratelimit_service_should_rate_limit_error")
				if want := `ratelimit_service_should_rate_limit_error{err_type="redis_error"} 1`; slices.Contains(errors, want) != tt.counted {
					t.Errorf("counted %q", errors)
				}
			})
		}
	}
}

// TestALimitThatCannotDenyIsMissing: requests that are answered OK although the
// store of a limit in shadow mode, or of one of several quotas, is away are
// charged to the other limits all the same.
func TestALimitThatCannotDenyIsMissing(t *testing.T) {
	for _, charge := range []string{"always", "admitted"} {
		for _, missing := range []string{"shadow", "quota"} {
			t.Run(missing+", charge "+charge, func(t *testing.T) {
				apart := func(c *config) {
					gone, err := memory.New(memory.Options{MaxKeys: 1})
					if err != nil {
						t.Fatal(err)
					}
					_ = gone.Close()
					if c.Store, err = split.New(c.Store, gone, time.Second); err != nil {
						t.Fatal(err)
					}
				}
				r := start(t, `
domain: d
charge: `+charge+`
descriptors:
  - {key: firm, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 9}}
  - {key: here, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: quota, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 9}}
`, apart)
				for i := range 5 {
					want := ok
					if i >= 3 {
						want = over
					}
					resp := r.call(request(desc("firm", "a"), desc("here", "a"), desc(missing, "a")))
					if resp.OverallCode != want {
						t.Errorf("request %d of a limit of 3: %v, want %v", i+1, resp.OverallCode, want)
					}
				}
			})
		}
	}
}

// TestADescriptorOfWhichALimitIsMissing: the store decides only the first of several
// limits on one descriptor.
func TestADescriptorOfWhichALimitIsMissing(t *testing.T) {
	first := func(c *config) { c.Store = firstOnly{c.Store} }
	r := start(t, `
domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: hour, requests_per_unit: 0, name: denies}
      - {unit: day, requests_per_unit: 9}
  - key: p
    rate_limits:
      - {unit: hour, requests_per_unit: 9, name: passes}
      - {unit: day, requests_per_unit: 9}
`, first)
	resp := r.call(request(desc("k", "a")))
	if resp.OverallCode != over || resp.Statuses[0].CurrentLimit.GetName() != "denies" {
		t.Errorf("%v, want the denial of the limit that was decided", resp)
	}
	if resp, err := r.try(request(desc("p", "a"))); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, %v; want UNAVAILABLE: the other limit could deny", resp, err)
	}
}

// firstOnly is a store that decides the first operation of a batch only.
type firstOnly struct{ backends.Store }

func (s firstOnly) Apply(ctx context.Context, b *backends.Batch) error {
	first := backends.Batch{Ops: b.Ops[:1], Replies: b.Replies[:1]}
	err := s.Store.Apply(ctx, &first)
	for i := range b.Replies[1:] {
		b.Replies[1+i].Err = backends.ErrUnavailable
		err = backends.ErrUnavailable
	}
	return err
}
