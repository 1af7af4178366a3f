package service_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

const rules = `
domain: d
descriptors:
  - key: five
    rate_limit: {unit: minute, requests_per_unit: 5, name: per-minute}
  - key: two
    rate_limit: {unit: hour, requests_per_unit: 2, name: per-hour}
  - key: shadow
    rate_limit: {unit: minute, requests_per_unit: 2}
    shadow_mode: true
  - key: free
    rate_limit: {unlimited: true}
  - key: never
    rate_limit: {unit: minute, requests_per_unit: 0}
  - key: long
    rate_limit: {unit: minute, unit_multiplier: 10, requests_per_unit: 5}
`

// TestContract has the expectations of Envoy and its users: which requests are refused,
// which limit a status shows, and how hits are counted.
func TestContract(t *testing.T) {
	refused := func(t *testing.T, r *rig, req *pb.RateLimitRequest, says string) {
		t.Helper()
		_, err := r.try(req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Fatalf("%v, want an InvalidArgument that says %q", err, says)
		}
		r.want(desc("five", says), ok, 4) // and the process lives on
	}
	for name, test := range map[string]func(t *testing.T, r *rig){
		"an empty domain is refused": func(t *testing.T, r *rig) {
			refused(t, r, &pb.RateLimitRequest{Descriptors: request(desc("five", "a")).Descriptors}, "domain")
		},
		"no descriptors are refused": func(t *testing.T, r *rig) {
			refused(t, r, &pb.RateLimitRequest{Domain: "d"}, "descriptor")
		},
		"one status per descriptor, in order": func(t *testing.T, r *rig) {
			s := r.call(request(desc("two", "a"), desc("nothing", ""), desc("five", "a"))).Statuses
			if s[0].CurrentLimit.GetName() != "per-hour" || s[1].CurrentLimit != nil || s[2].CurrentLimit.GetName() != "per-minute" {
				t.Fatalf("%v", s)
			}
		},
		"one enforced OVER_LIMIT is OVER_LIMIT": func(t *testing.T, r *rig) {
			both := request(desc("two", "a"), desc("five", "a"))
			r.call(both)
			r.call(both)
			resp := r.call(both)
			if resp.OverallCode != over || resp.Statuses[0].Code != over || resp.Statuses[1].Code != ok {
				t.Fatalf("%v", resp)
			}
		},
		"an unknown domain is OK without a limit": func(t *testing.T, r *rig) {
			req := request(withLimit(0, 1, nil, desc("five", "a")))
			req.Domain = "unknown"
			if resp := r.call(req); resp.OverallCode != ok || resp.Statuses[0].Code != ok || resp.Statuses[0].CurrentLimit != nil {
				t.Fatalf("%v", resp)
			}
		},
		"no match is OK without a limit": func(t *testing.T, r *rig) {
			for _, d := range [][]string{{"nothing", "a"}, {"five", "a", "deeper", "b"}} {
				if s := r.hit(desc(d...)); s.Code != ok || s.CurrentLimit != nil {
					t.Fatalf("%v", s)
				}
			}
		},
		"a descriptor without entries is OK": func(t *testing.T, r *rig) {
			if s := r.hit(desc()); s.Code != ok || s.CurrentLimit != nil {
				t.Fatalf("%v", s)
			}
		},
		"an empty value is a value": func(t *testing.T, r *rig) {
			r.want(desc("five", ""), ok, 4)
			r.want(desc("five", ""), ok, 3)
			r.want(desc("five", "a"), ok, 4)
		},
		"duplicates are charged one after the other": func(t *testing.T, r *rig) {
			s := r.call(request(desc("two", "a"), desc("two", "a"), desc("two", "a"))).Statuses
			if s[0].LimitRemaining != 1 || s[1].LimitRemaining != 0 || s[1].Code != ok || s[2].Code != over {
				t.Fatalf("%v", s)
			}
		},
		"unknown fields are ignored": func(t *testing.T, r *rig) {
			req := request(desc("five", "a"))
			b, err := proto.Marshal(req)
			if err != nil {
				t.Fatal(err)
			}
			b = protowire.AppendTag(b, 1000, protowire.BytesType)
			b = protowire.AppendString(b, "from the future")
			if err := proto.Unmarshal(b, req); err != nil || len(req.ProtoReflect().GetUnknown()) == 0 {
				t.Fatal("the request has no unknown field", err)
			}
			if s := r.call(req).Statuses[0]; s.LimitRemaining != 4 {
				t.Fatalf("%v", s)
			}
		},
		"hits_addend of 0 counts 1, of n counts n": func(t *testing.T, r *rig) {
			r.want(desc("five", "a"), ok, 4)
			req := request(desc("five", "a"))
			req.HitsAddend = 3
			if s := r.call(req).Statuses[0]; s.Code != ok || s.LimitRemaining != 1 {
				t.Fatalf("%v", s)
			}
		},
		"a descriptor's own hits_addend wins": func(t *testing.T, r *rig) {
			req := request(withHits(2, desc("five", "a")), desc("five", "b"))
			req.HitsAddend = 4
			s := r.call(req).Statuses
			if s[0].LimitRemaining != 3 || s[1].LimitRemaining != 1 {
				t.Fatalf("%v", s)
			}
		},
		"an explicit 0 only checks": func(t *testing.T, r *rig) {
			for range 3 {
				req := request(withHits(0, desc("two", "a")))
				req.HitsAddend = 2
				if s := r.call(req).Statuses[0]; s.Code != ok || s.LimitRemaining != 2 {
					t.Fatalf("%v", s)
				}
			}
			r.want(withHits(2, desc("two", "a")), ok, 0)
			r.want(withHits(0, desc("two", "a")), ok, 0) // at the limit, not over
			r.want(desc("two", "a"), over, 0)
			r.want(withHits(0, desc("two", "a")), over, 0)
		},
		"large values do not wrap": func(t *testing.T, r *rig) {
			for _, n := range []uint64{1 << 32, 1<<32 + 1, 1 << 63, math.MaxUint64} {
				r.want(withHits(n, desc("five", "a")), over, 0)
			}
			r.want(desc("five", "a"), over, 0)
		},
		"negative hits give back, not above the limit": func(t *testing.T, r *rig) {
			r.want(withHits(5, desc("five", "a")), ok, 0)
			r.want(refund(2, desc("five", "a")), ok, 2)
			r.want(desc("five", "a"), ok, 1)
			r.want(refund(100, desc("five", "a")), ok, 5)
			r.want(refund(math.MaxUint64, desc("five", "b")), ok, 5)
			r.want(desc("five", "a"), ok, 4)
		},
		"an override beats the configured limit and its shadow mode": func(t *testing.T, r *rig) {
			r.want(withLimit(1, 1, nil, desc("five", "a")), ok, 0)
			r.want(withLimit(1, 1, nil, desc("five", "a")), over, 0)
			r.want(withLimit(1, 1, nil, desc("shadow", "a")), ok, 0)
			r.want(withLimit(1, 1, nil, desc("shadow", "a")), over, 0)
			r.want(withLimit(1, 1, nil, desc("nobody's rule", "a")), ok, 0)
			// With the rule's unit it counts in the rule's counter.
			r.want(desc("five", "c"), ok, 4)
			r.want(withLimit(100, 2, nil, desc("five", "c")), ok, 98)
		},
		"an override keeps the burst of the rule": func(t *testing.T, r *rig) {
			r.load("domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 100, strategy: gcra, burst: 50}}]")
			for left := range uint32(50) {
				r.want(withLimit(200, 1, nil, desc("k", "a")), ok, 49-left)
			}
			r.want(withLimit(200, 1, nil, desc("k", "a")), over, 0)
		},
		"an override may be larger than a sliding_log": func(t *testing.T, r *rig) {
			r.load("domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 100, strategy: sliding_log}}]")
			r.want(withHits(3, withLimit(20_000, 2, nil, desc("k", "a"))), ok, 19_997)
			r.want(withHits(20_000, withLimit(20_000, 2, nil, desc("k", "a"))), over, 0)
		},
		"units of overrides": func(t *testing.T, r *rig) {
			refused(t, r, request(withLimit(1, 0, nil, desc("five", "a"))), "unit")
			refused(t, r, request(desc("five", "alive"), withLimit(1, 8, nil, desc("five", "b"))), "unit 8")
			r.want(withLimit(9, 7, nil, desc("five", "week")), ok, 8)
			s := r.hit(withLimit(9, 7, nil, desc("five", "week")))
			if s.CurrentLimit.Unit != pb.RateLimitResponse_RateLimit_WEEK {
				t.Fatalf("%v", s)
			}
			refused(t, r, request(withLimit(1, -1, nil, desc("five", "c"))), "unit -1")
			refused(t, r, request(withLimit(1, 257, nil, desc("five", "d"))), "unit 257")
		},
		"unit_multiplier scales the window": func(t *testing.T, r *rig) {
			r.want(withLimit(2, 2, wrapperspb.UInt32(10), desc("five", "a")), ok, 1)
			r.pass(2 * time.Minute) // the minute is over, ten minutes are not
			r.want(withLimit(2, 2, wrapperspb.UInt32(10), desc("five", "a")), ok, 0)
			s := r.hit(withLimit(2, 2, wrapperspb.UInt32(10), desc("five", "a")))
			if s.Code != over || s.CurrentLimit.UnitMultiplier.GetValue() != 10 || s.DurationUntilReset.Seconds <= 60 {
				t.Fatalf("%v", s)
			}
			if s := r.hit(desc("long", "a")); s.CurrentLimit.UnitMultiplier.GetValue() != 10 {
				t.Fatalf("a rule's multiplier: %v", s)
			}
			if s := r.hit(withLimit(2, 2, wrapperspb.UInt32(1), desc("five", "b"))); s.CurrentLimit.UnitMultiplier != nil {
				t.Fatalf("%v", s)
			}
			refused(t, r, request(withLimit(1, 2, wrapperspb.UInt32(0), desc("five", "c"))), "unit_multiplier")
			refused(t, r, request(withLimit(1, 6, wrapperspb.UInt32(4_000_000_000), desc("five", "c"))), "1 to 10")
		},
		"statuses": func(t *testing.T, r *rig) {
			for i := range 8 {
				s := r.hit(desc("five", "a"))
				if s.CurrentLimit.Name != "per-minute" || s.CurrentLimit.RequestsPerUnit != 5 || s.CurrentLimit.Unit != pb.RateLimitResponse_RateLimit_MINUTE {
					t.Fatalf("%v", s)
				}
				if d := s.DurationUntilReset.AsDuration(); d < time.Second || d > time.Minute {
					t.Fatalf("reset in %v", d)
				}
				if i >= 5 && (s.Code != over || s.LimitRemaining != 0) {
					t.Fatalf("hit %d: %v", i+1, s)
				}
				r.pass(7*time.Second - 300*time.Millisecond)
			}
		},
		"unlimited": func(t *testing.T, r *rig) {
			if s := r.hit(desc("free", "a")); s.Code != ok || s.LimitRemaining != math.MaxUint32 || s.CurrentLimit != nil {
				t.Fatalf("%v", s)
			}
		},
		"a shadow rule is OK and shows its limit while over": func(t *testing.T, r *rig) {
			for i, remaining := range []uint32{1, 0, 0, 0} {
				resp := r.call(request(desc("shadow", "a")))
				if s := resp.Statuses[0]; resp.OverallCode != ok || s.Code != ok || s.LimitRemaining != remaining ||
					s.CurrentLimit.GetRequestsPerUnit() != 2 || s.DurationUntilReset.GetSeconds() != 50 {
					t.Fatalf("hit %d: %v; want OK with the limit 2, %d remaining and the reset in 50 s", i+1, resp, remaining)
				}
			}
		},
		"requests_per_unit 0 rejects the first hit": func(t *testing.T, r *rig) {
			r.want(desc("never", "a"), over, 0)
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, start(t, rules)) })
	}
}

func TestContractOfTime(t *testing.T) {
	behind := func(t *testing.T, timeout time.Duration) *rig {
		return start(t, rules, func(c *config) {
			s := stack.Deadline(stuck{c.Store}, timeout)
			c.Store = s
		})
	}
	t.Run("an expired deadline returns promptly", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := behind(t, time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_, err := r.client.ShouldRateLimit(ctx, request(desc("five", "a")))
			if took := time.Since(begin); err == nil || took > 20*time.Millisecond {
				t.Fatalf("%v after %v", err, took)
			}
		})
	})
	t.Run("an answer comes before the caller's deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := behind(t, time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := r.client.ShouldRateLimit(ctx, request(desc("five", "a")))
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("%v, want the server's own UNAVAILABLE", err)
			}
		})
	})
	t.Run("a caller without a deadline waits for the timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := behind(t, 50*time.Millisecond)
			begin := time.Now()
			_, err := r.client.ShouldRateLimit(t.Context(), request(desc("five", "a")))
			if took := time.Since(begin); status.Code(err) != codes.Unavailable || took != 50*time.Millisecond {
				t.Fatalf("%v after %v", err, took)
			}
		})
	})
	t.Run("callers that give up leave nothing behind", func(t *testing.T) {
		r := behind(t, time.Minute)
		r.try(&pb.RateLimitRequest{}) //nolint:errcheck // opens the connection
		before := runtime.NumGoroutine()
		for range 200 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			r.client.ShouldRateLimit(ctx, request(desc("five", "a"))) //nolint:errcheck // gives up
			cancel()
		}
		testenv.Eventually(t, 10*time.Second, func() bool { return runtime.NumGoroutine() <= before+5 }, "goroutines end with their callers")
	})
	t.Run("a store that fails is never OVER_LIMIT without a policy that says so", func(t *testing.T) {
		r := start(t, rules, func(c *config) { c.Store = failing{c.Store} })
		resp, err := r.try(request(desc("five", "a")))
		if status.Code(err) != codes.Unavailable || resp.GetOverallCode() == over {
			t.Fatalf("%v, %v", resp, err)
		}
		// An unlimited descriptor and a limit of 0 need no store.
		r.want(desc("free", "a"), ok, math.MaxUint32)
		r.want(desc("never", "a"), over, 0)
	})
	t.Run("without rules every call is an error", func(t *testing.T) {
		r := start(t, "")
		if _, err := r.try(request(desc("five", "a"))); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no rate limit configuration loaded") {
			t.Fatal(err)
		}
	})
}

// failing is a store that is down.
type failing struct{ backends.Store }

func (failing) Apply(_ context.Context, b *backends.Batch) error {
	return b.Fail(errors.Join(backends.ErrUnavailable, errors.New("down")))
}

// TestCaps: a request beyond the caps is denied, one status for each descriptor, and nothing is
// charged or given back.
func TestCaps(t *testing.T) {
	open := func(t *testing.T, change func(*config)) *rig {
		return start(t, rules, func(c *config) {
			c.Caps = service.Caps{Bytes: 200, Descriptors: 2, Entries: 3}
			change(c)
		})
	}
	asDefault := func(*config) {}
	for says, req := range map[string]*pb.RateLimitRequest{
		"REQUEST_MAX_DESCRIPTORS": request(desc("five", "a"), desc("five", "b"), desc("five", "c")),
		"REQUEST_MAX_ENTRIES":     request(desc("five", "a"), desc("a", "", "b", "", "c", "", "d", "")),
		"REQUEST_MAX_BYTES":       request(desc("five", "a"), desc("five", strings.Repeat("x", 200))),
	} {
		t.Run(says, func(t *testing.T) {
			r := open(t, asDefault)
			reply := r.call(req)
			if sentence := reply.DynamicMetadata.GetFields()["beyond_caps"].GetStringValue(); reply.OverallCode != over || !strings.Contains(sentence, says) {
				t.Errorf("%v, want a denial with metadata that names %s", reply, says)
			}
			for i, s := range reply.Statuses {
				if s.Code != over || s.CurrentLimit != nil {
					t.Errorf("status %d is %v", i, s)
				}
			}
			r.want(desc("five", "a"), ok, 4)
			req.Domain = "unknown"
			if reply := r.call(req); reply.OverallCode != ok || reply.Statuses[0].Code != ok || reply.DynamicMetadata != nil {
				t.Errorf("of an unknown domain: %v", reply)
			}
		})
	}
	many := request(desc("five", "a"), refund(1, desc("five", "a")), withHits(0, desc("five", "a")))
	t.Run("refunds and checks", func(t *testing.T) {
		r := open(t, asDefault)
		r.want(desc("five", "a"), ok, 4)
		reply := r.call(many)
		if s := reply.Statuses; reply.OverallCode != over || s[0].Code != over || s[1].Code != ok || s[2].Code != over {
			t.Errorf("%v, want only the refund passed", reply)
		}
		if reply := r.call(request(many.Descriptors[1], many.Descriptors[1], many.Descriptors[1])); reply.OverallCode != ok {
			t.Errorf("refunds: %v", reply)
		}
		r.want(desc("five", "a"), ok, 3)
	})
	t.Run("shadow mode", func(t *testing.T) {
		r := open(t, func(c *config) { c.ShadowMode = true })
		if reply := r.call(many); reply.OverallCode != ok || reply.Statuses[0].Code != over {
			t.Errorf("%v, want OK with statuses that are over", reply)
		}
	})
	t.Run("refused", func(t *testing.T) {
		r := open(t, func(c *config) { c.Caps.Refuse = true })
		if _, err := r.try(many); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "REQUEST_MAX_DESCRIPTORS") {
			t.Errorf("%v, want an InvalidArgument that names REQUEST_MAX_DESCRIPTORS", err)
		}
	})
}

// TestCapsBoundMemory: a request of millions of descriptors takes a few bytes for each.
func TestCapsBoundMemory(t *testing.T) {
	r := start(t, rules, func(c *config) { c.Caps = service.Caps{Bytes: 4 << 20, Descriptors: 1024, Entries: 512} })
	const n = 1_000_000
	message := append([]byte("\x0a\x01d"), bytes.Repeat([]byte("\x12\x00"), n)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	reply := r.invoke(t, message)
	runtime.ReadMemStats(&after)
	if reply.OverallCode != over || len(reply.Statuses) != n {
		t.Errorf("%v with %d statuses", reply.OverallCode, len(reply.Statuses))
	}
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 300 { // most of it is the reply that the test reads
		t.Errorf("%d bytes allocated for each descriptor", each)
	}
}

// TestHostileBytes: values of any bytes have counters of their own.
func TestHostileBytes(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: minute, requests_per_unit: 5}\n    descriptors:\n      - key: b\n        rate_limit: {unit: minute, requests_per_unit: 5}\n")
	for _, d := range [][]string{
		{"a", "x|b=y"}, {"a", "x", "b", "y"}, {"a", "x_b_y"}, {"a", "x\n"}, {"a", "x "}, {"a", "x}"}, {"a", "{x}"},
		{"a", "x\x00"}, {"a", "*"}, {"a", "%2A"}, {"a", strings.Repeat("x", 10_000)}, {"a", "x", "b", ""}, {"a", "x|b"},
		{"a", "\uFFFD"}, {"a", "\\xff"},
	} {
		r.want(desc(d...), ok, 4)
	}
	for _, text := range []string{"\xff", "\xfe", "\xff\\x", "caf\xe9", "\xed\xa0\x80", "x\x80", "\xc0\xaf"} {
		for remaining := uint32(5); remaining > 0; remaining-- {
			if s := r.invoke(t, anyBytes(t, request(desc("a", place(text))), place(text), text)).Statuses[0]; s.Code != ok || s.LimitRemaining != remaining-1 {
				t.Fatalf("%q: %v, want %d remaining", text, s, remaining-1)
			}
		}
		if reply := r.invoke(t, anyBytes(t, request(desc("a", place(text))), place(text), text)); reply.OverallCode != over {
			t.Errorf("%q: %v after five hits", text, reply)
		}
	}
	for _, part := range []string{"domain", "key"} { // there, too
		req := request(desc("key", ""))
		req.Domain = "domain"
		if reply := r.invoke(t, anyBytes(t, req, part, strings.Repeat("\xff", len(part)))); reply.OverallCode != ok {
			t.Errorf("a %s of other bytes: %v", part, reply)
		}
	}
}

// TestLongTexts: matches see the whole of a long text, and each one has a counter of its own.
func TestLongTexts(t *testing.T) {
	r := start(t, `
domain: d
descriptors:
  - {key: end, match: {suffix: -free}, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: end, rate_limit: {unit: minute, requests_per_unit: 9}}
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
`)
	long := strings.Repeat("x", 20_000)
	r.want(desc("end", long+"-free"), ok, 1)
	r.want(desc("end", long+"-paid"), ok, 8)
	sum := sha256.Sum256([]byte(long))
	for _, text := range []string{
		long, long + "y", "y" + long[1:], long[:1023], long[:1024], long[:1025], long[:1026],
		long[:1025-len(sum)] + string(sum[:]), // as names have the first
	} {
		r.invoke(t, anyBytes(t, request(desc("a", place(text))), place(text), text))
		if s := r.invoke(t, anyBytes(t, request(desc("a", place(text))), place(text), text)).Statuses[0]; s.LimitRemaining != 3 {
			t.Errorf("%d bytes: %d remaining, want 3", len(text), s.LimitRemaining)
		}
	}
}

// place is an ASCII text as long as another one, for which anyBytes puts that.
func place(text string) string { return strings.Repeat("~", len(text)) }

// anyBytes is a request on the wire with a text in the place of another one of its length.
func anyBytes(t *testing.T, req *pb.RateLimitRequest, old, text string) []byte {
	data, err := proto.Marshal(req)
	if err != nil || !bytes.Contains(data, []byte(old)) {
		t.Fatal(err, old)
	}
	return bytes.Replace(data, []byte(old), []byte(text), 1)
}

// invoke sends a message and returns the reply, which must be no error.
func (r *rig) invoke(t *testing.T, message []byte) *pb.RateLimitResponse {
	t.Helper()
	var reply pb.RateLimitResponse
	if err := r.conn.Invoke(context.Background(), pb.RateLimitService_ShouldRateLimit_FullMethodName, message, &reply, grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20)); err != nil {
		t.Fatal(err)
	}
	return &reply
}

// rawCodec sends a []byte as the message, so that a test can send bytes that are
// no valid message.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(proto.Message)) }
func (rawCodec) Name() string                       { return "proto" }

// fuzzRules adds the other strategies to rules, and several limits for one
// descriptor.
const fuzzRules = `
  - key: several
    quota_mode: true
    rate_limits:
      - {unit: second, requests_per_unit: 2}
      - {unit: minute, requests_per_unit: 5, strategy: sliding_window}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 5, strategy: sliding_log}}
  - {key: bucket, rate_limit: {unit: hour, requests_per_unit: 5, strategy: token_bucket, burst: 4000000}}
  - {key: queue, rate_limit: {unit: second, requests_per_unit: 1000, strategy: leaky_bucket, max_delay: 1ms}}
  - {key: match, match: {regex: "[^@]{1,9}x+|\\xff"}, rate_limit: {unit: second, requests_per_unit: 2}}
  - {key: debt, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 5, overdraft: true}}
  - key: slot
    descriptors: [{key: job, rate_limit: {unit: hour, requests_per_unit: 5, strategy: concurrency, reserve: true}}]
`

// FuzzRequest: any message whose fields have the right wire types is decided, one status per
// descriptor, unless it has no domain, no descriptor, or an override with an impossible unit or
// multiplier. To any other bytes the answer is an error, and the process goes on.
func FuzzRequest(f *testing.F) {
	for _, req := range []*pb.RateLimitRequest{
		request(desc("five", "a")), request(withLimit(1, 0, nil, desc("two", "a"))),
		request(refund(3, desc("five", "a")), withHits(math.MaxUint64, desc("long", "b"))),
		request(desc("several", "a"), withLimit(1, 2, nil, desc("several", "a")), refund(1, desc("log", "a")), withLimit(20_000, 1, nil, desc("log", "a"))),
		request(desc("bucket", "a"), desc("bucket", "a"), withHits(1<<40, desc("queue", "a")), withLimit(0, 4, nil, desc("bucket", "a"))),
		request(desc("five", ""), desc(), desc("five", "", "five", ""), desc("", ""), desc("five", "a"), desc("five", "a"), desc("five", "a")),
		request(desc("match", "~~"), desc("match", strings.Repeat("x", 2000)), withHits(2, desc("slot", "id", "job", "~")), refund(2, desc("slot", "id", "job", "~"))),
		request(withHits(9, desc("debt", "~")), withLimit(math.MaxUint32, 6, wrapperspb.UInt32(100), desc("debt", "~"))),
	} {
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(bytes.ReplaceAll(b, []byte("~"), []byte("\xff")))
	}
	r := start(f, rules+fuzzRules, func(c *config) {
		c.Caps = service.Caps{Bytes: 2000, Descriptors: 6, Entries: 3}
		c.Reply = envoy.Reply{Metadata: true, IETF: true, ProblemBody: true}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		var req pb.RateLimitRequest
		wrong := envoy.Unmarshal(b, &req)
		var resp pb.RateLimitResponse
		err := r.conn.Invoke(context.Background(), pb.RateLimitService_ShouldRateLimit_FullMethodName, b, &resp, grpc.ForceCodec(rawCodec{}))
		switch c := status.Code(err); {
		case wrong != nil && err == nil, wrong == nil && err != nil && (c != codes.InvalidArgument || !impossible(&req)):
			t.Fatalf("%v for %v (%v)", err, &req, wrong)
		case err != nil:
		case len(resp.Statuses) != len(req.Descriptors) || resp.OverallCode == pb.RateLimitResponse_UNKNOWN:
			t.Fatalf("%v for %v", &resp, &req)
		}
	})
}

// impossible reports whether a request cannot be decided.
func impossible(req *pb.RateLimitRequest) bool {
	return req.Domain == "" || len(req.Descriptors) == 0 || slices.ContainsFunc(req.Descriptors, func(d *rlcommon.RateLimitDescriptor) bool {
		unit := descriptors.Unit(d.GetLimit().GetUnit())
		m := d.GetLimit().GetUnitMultiplier()
		return d.GetLimit() != nil && (!unit.Valid() || m != nil && (m.Value == 0 || time.Duration(m.Value) > algorithms.MaxWindow/unit.Duration()))
	})
}
