package service_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
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

// TestAStoreThatDecidesAPart: a request fails only if an operation that neither the
// store nor a policy decided could deny it. Each descriptor names a rule and, in its
// value, whether the store decides.
func TestAStoreThatDecidesAPart(t *testing.T) {
	const here, away = "here", "away"
	noMode := func(*config) {}
	shadowMode := func(c *config) { c.ShadowMode = true }
	quotaMode := func(c *config) { c.QuotaMode = true }
	for _, tt := range []struct {
		name string
		mode func(*config)
		ask  []string // rule and value in turn
		want pb.RateLimitResponse_Code
		of   []pb.RateLimitResponse_Code
	}{
		{"nothing is missing", noMode, []string{"error", here}, ok, []pb.RateLimitResponse_Code{ok}},
		{"an enforced limit is missing", noMode, []string{"error", here, "error", away}, unavailable, nil},
		{"an enforced limit is missing and another one denies", noMode, []string{"error", away, "zero-error", here}, over, []pb.RateLimitResponse_Code{unknown, over}},
		{"a limit in shadow mode is missing", noMode, []string{"shadow-error", away, "error", here}, ok, []pb.RateLimitResponse_Code{unknown, ok}},
		{"one quota passes and the other is missing", noMode, []string{"quota-error", here, "quota-error", away}, ok, []pb.RateLimitResponse_Code{ok, unknown}},
		{"one quota is used up and the other is missing", noMode, []string{"quota-full", here, "quota-error", away}, unavailable, nil},
		{"a quota is missing and an enforced limit denies", noMode, []string{"quota-error", away, "zero-error", here}, over, []pb.RateLimitResponse_Code{unknown, over}},
		{"SHADOW_MODE", shadowMode, []string{"error", away, "zero-error", here}, ok, []pb.RateLimitResponse_Code{unknown, over}},
		{"QUOTA_MODE, one passes", quotaMode, []string{"error", here, "error", away}, ok, []pb.RateLimitResponse_Code{ok, unknown}},
		{"QUOTA_MODE, one has no limit", quotaMode, []string{"nothing", here, "error", away}, ok, []pb.RateLimitResponse_Code{ok, unknown}},
		{"QUOTA_MODE, none passes", quotaMode, []string{"zero-error", here, "error", away}, unavailable, nil},

		{"a denial by policy wins over an undecided error", noMode, []string{"error", away, "deny", away}, over, []pb.RateLimitResponse_Code{unknown, over}},
		{"so does that of a limit of 0", noMode, []string{"error", away, "zero-allow", away}, over, []pb.RateLimitResponse_Code{unknown, over}},
		{"and one that was counted", noMode, []string{"error", away, "zero-error", here, "allow", away}, over, []pb.RateLimitResponse_Code{unknown, over, ok}},
		{"an undecided error wins over what passes", noMode, []string{"allow", away, "error", away, "local", away, "error", here}, unavailable, nil},
		{"the store decides its part", noMode, []string{"error", here, "allow", away, "deny", here}, ok, []pb.RateLimitResponse_Code{ok, ok, ok}},
		{"a shadow rule never denies", noMode, []string{"shadow-deny", away, "allow", away}, ok, []pb.RateLimitResponse_Code{ok, ok}},
		{"one quota passes by policy", noMode, []string{"quota-allow", away, "quota-deny", away, "quota-full", here}, ok, []pb.RateLimitResponse_Code{ok, over, over}},
		{"all quotas deny, one by policy", noMode, []string{"quota-deny", away, "quota-full", here}, over, []pb.RateLimitResponse_Code{over, over}},
		{"QUOTA_MODE with policies", quotaMode, []string{"deny", away, "allow", away}, ok, []pb.RateLimitResponse_Code{over, ok}},
		{"SHADOW_MODE with policies", shadowMode, []string{"deny", away, "error", away}, ok, []pb.RateLimitResponse_Code{over, unknown}},
		{"unlimited", noMode, []string{"unlimited", away, "deny", away}, over, []pb.RateLimitResponse_Code{ok, over}},
	} {
		for _, charge := range []string{"always", "admitted"} {
			t.Run(tt.name+", charge "+charge, func(t *testing.T) {
				var m *metrics.Metrics
				r := start(t, "charge: "+charge+policyRules, measure(t, &m), partAway, tt.mode, local(t),
					replying(envoy.Reply{RateLimit: reference, IETF: true, Metadata: true, ProblemBody: true}))
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
				case err != nil || resp.OverallCode != tt.want || len(resp.Statuses) != len(tt.of):
					t.Errorf("%v, %v; want %v", resp, err, tt.want)
				default:
					for i, s := range resp.Statuses {
						if s.Code != tt.of[i] || s.Code == unknown && (s.CurrentLimit != nil || s.DurationUntilReset != nil) {
							t.Errorf("status %d: %v, want %v", i, s, tt.of[i])
						}
					}
				}
				errors := counted(t, m, "ratelimit_service_should_rate_limit_error")
				if want := `ratelimit_service_should_rate_limit_error{err_type="redis_error"} 1`; slices.Contains(errors, want) != slices.Contains(tt.ask, away) {
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
				r := start(t, `
domain: d
charge: `+charge+`
descriptors:
  - {key: firm, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 9}}
  - {key: here, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: quota, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 9}}
`, secondsAway(t))
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
