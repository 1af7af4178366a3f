package operate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

const strategies = `domain: d
descriptors:
- {key: fixed, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: calendar, rate_limit: {unit: day, requests_per_unit: 10, window: calendar, timezone: Asia/Kathmandu}}
- {key: first, rate_limit: {unit: minute, requests_per_unit: 10, window: from_first_hit}}
- {key: sliding, rate_limit: {unit: minute, requests_per_unit: 10, strategy: sliding_window}}
- {key: log, rate_limit: {unit: minute, requests_per_unit: 10, strategy: sliding_log}}
- {key: bucket, rate_limit: {unit: minute, requests_per_unit: 60, burst: 10, strategy: token_bucket}}
- {key: gcra, rate_limit: {unit: minute, requests_per_unit: 60, burst: 10, strategy: gcra}}
- {key: leaky, rate_limit: {unit: minute, requests_per_unit: 60, burst: 10, strategy: leaky_bucket}}
`

func TestLookTellsTheStateAndChargesNothing(t *testing.T) {
	r := start(t, strategies)
	for key, want := range map[string]explain.Cell{
		"fixed":   {Usage: explain.Usage{Count: 3, Remaining: 7}, Reset: explain.Duration(50 * time.Second)},
		"first":   {Usage: explain.Usage{Count: 3, Remaining: 7}, Reset: explain.Duration(time.Minute)},
		"sliding": {Usage: explain.Usage{Count: 3, Remaining: 7}, Reset: explain.Duration(110 * time.Second)},
		"log":     {Usage: explain.Usage{Count: 3, Remaining: 7}, Reset: explain.Duration(time.Minute)},
		"bucket":  {Usage: explain.Usage{Count: 3, Remaining: 7}, Reset: explain.Duration(3 * time.Second)},
		"gcra":    {Usage: explain.Usage{Count: 3, Remaining: 7}, Reset: explain.Duration(3 * time.Second)},
		"leaky":   {Usage: explain.Usage{Count: 3, Remaining: 7}, Reset: explain.Duration(3 * time.Second)},
	} {
		empty := only(t, r.inspect(operate.Look, request(desc(key, "a"))))
		if empty.Count != 0 || empty.Remaining != 10 {
			t.Errorf("%s, before a hit: %+v", key, empty.Cell)
		}
		r.hit(withHits(3, desc(key, "a")))
		for range 3 {
			seen := only(t, r.inspect(operate.Look, request(withHits(5, desc(key, "a")))))
			if seen.Next = nil; *seen.Cell != want || seen.Error != "" {
				t.Errorf("%s: %+v, want %+v", key, seen.Cell, want)
			}
		}
		if trace := only(t, r.inspect(operate.Trace, request(desc(key, "a")))); trace.State != nil || trace.Key != empty.Key {
			t.Errorf("%s: a trace has %+v", key, trace)
		}
	}
}

// TestLookTellsWhenTheHitsPass: not before Next, and then they do.
func TestLookTellsWhenTheHitsPass(t *testing.T) {
	const moment = time.Millisecond // the resolution of sliding_window
	for key, want := range map[string]time.Duration{
		"fixed":   50 * time.Second,
		"first":   time.Minute,
		"sliding": 72500 * time.Millisecond, // 8 × 37.5 s / 60 s = 5
		"log":     time.Minute,
		"bucket":  3 * time.Second,
		"gcra":    3 * time.Second,
		"leaky":   3 * time.Second,
	} {
		t.Run(key, func(t *testing.T) {
			r := start(t, strategies)
			five := withHits(5, desc(key, "a"))
			passes := func(desc service.Descriptor, in time.Duration) {
				t.Helper()
				seen := only(t, r.inspect(operate.Look, request(desc)))
				if seen.Error != "" || *seen.Next != explain.Duration(in) || seen.Never {
					t.Errorf("next in %v, never %v, error %v; want %v", *seen.Next, seen.Never, seen.Error, in)
				}
			}
			passes(five, 0)
			passes(withHits(10, desc(key, "a")), 0)
			r.hit(withHits(8, desc(key, "a")))
			passes(five, want)
			passes(withHits(2, desc(key, "a")), 0)
			passes(refund(20, desc(key, "a")), 0)
			if seen := only(t, r.inspect(operate.Look, request(withHits(11, desc(key, "a"))))); !seen.Never {
				t.Errorf("11 hits of 10 pass in %v", seen.Next)
			}
			r.pass(want - moment)
			passes(five, moment)
			r.pass(moment)
			passes(five, 0)
			if s := r.hit(five); s.over {
				t.Error("denied at that moment")
			}
		})
	}
}

func TestAGrantLetsMoreHitsPassThanTheLimit(t *testing.T) {
	for _, key := range everyStrategy {
		r := start(t, strategies)
		r.change(operate.Grant(operate.Granting{Hits: 5}), request(desc(key, "a")))
		for hits, never := range map[uint64]bool{15: false, 16: true} {
			if seen := only(t, r.inspect(operate.Look, request(withHits(hits, desc(key, "a"))))); seen.Never != never || !never && *seen.Next != 0 {
				t.Errorf("%s: %d hits pass in %v, never %v", key, hits, seen.Next, seen.Never)
			}
		}
	}
}

func TestALimitOfNothingNeverPasses(t *testing.T) {
	for _, strategy := range []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "leaky_bucket"} {
		r := start(t, "domain: d\ndescriptors:\n- {key: none, rate_limit: {unit: minute, requests_per_unit: 0, strategy: "+strategy+"}}\n")
		if seen := only(t, r.inspect(operate.Look, request(desc("none", "a")))); !seen.Never || seen.Cell == nil {
			t.Errorf("%s: got %+v", strategy, seen)
		}
	}
}

// TestNextHitOfAQueue: hits that find room in the queue pass after their wait, also more
// hits than its burst.
func TestNextHitOfAQueue(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n- {key: q, rate_limit: {unit: minute, requests_per_unit: 60, strategy: leaky_bucket, max_delay: 2s}}\n")
	for _, want := range []map[uint64]time.Duration{
		{1: 0, 3: 0}, // unused
		{1: 0, 2: 0, 3: time.Second},
		{1: 0, 2: time.Second, 3: 2 * time.Second},
		{1: time.Second, 2: 2 * time.Second, 3: 3 * time.Second},
	} {
		for hits, in := range want {
			if seen := only(t, r.inspect(operate.Look, request(withHits(hits, desc("q", "a"))))); seen.Never || *seen.Next != explain.Duration(in) {
				t.Errorf("%d hits pass in %v, never %v; want %v", hits, seen.Next, seen.Never, in)
			}
		}
		if seen := only(t, r.inspect(operate.Look, request(withHits(4, desc("q", "a"))))); !seen.Never {
			t.Errorf("4 hits pass in %v", seen.Next)
		}
		one := &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "q", Value: "a"}}}}}
		if _, err := r.service.Evaluate(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFixedWindowCountsDeniedHits(t *testing.T) {
	r := start(t, strategies)
	for range 4 {
		r.hit(withHits(4, desc("fixed", "a")))
	}
	if seen := only(t, r.inspect(operate.Look, request(desc("fixed", "a")))); seen.Count != 16 || seen.Remaining != 0 {
		t.Errorf("got %+v", seen.Cell)
	}
}

func TestInspectTellsWhatLimits(t *testing.T) {
	r := start(t, `domain: d
descriptors:
- {key: free, rate_limit: {unlimited: true}}
- key: several
  rate_limits: [{unit: second, requests_per_unit: 1}, {unit: minute, requests_per_unit: 5, name: per_minute, on_error: deny}]
- {key: vip, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: per_minute}]}}
- {key: tried, shadow_mode: true, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1, on_error: local}}
`)
	in := r.inspect(operate.Look, request(desc("free", "1"), desc("several", "1"), desc("vip", "1"), desc("tried", "1"),
		withLimit(7, descriptors.Minute, desc("vip", "2")), withLimit(7, descriptors.Minute, desc("none", "1")), desc("none", "1")))
	if free := in[0]; free.Rule != "d.free" || !free.Limits[0].Unlimited || free.Limits[0].Terms != nil {
		t.Errorf("unlimited: %+v", free)
	}
	second, minute := in[1].Limits[0], in[1].Limits[1]
	if second.ReplacedBy != "" || second.Policy != "error" || minute.ReplacedBy != "d.vip" || minute.Policy != "deny" || minute.Name != "per_minute" {
		t.Errorf("several: %+v, %+v", second, minute)
	}
	if tried := in[3]; !tried.Shadow || !tried.Quota || tried.Limits[0].Policy != "error" {
		t.Errorf("shadow and quota mode: %+v", tried)
	}
	if o := in[4]; o.Override == nil || o.Rule != "d.override" || o.Limits[0].Limit != 7 {
		t.Errorf("override of a rule: %+v", o)
	}
	if o := in[5]; o.Override == nil || o.Rule != "d.override" || o.Limits[0].Key == "" {
		t.Errorf("override without a rule: %+v", o)
	}
	if none := in[6]; none.Rule != "" || len(none.Limits) != 0 || none.Why != "no descriptor matches none=1" {
		t.Errorf("no rule: %+v", none)
	}
}

func TestInspectRefusesWhatDecideRefuses(t *testing.T) {
	r := start(t, "")
	if _, err := r.ask(operate.Look, request(desc("a", "1"))); status.Code(err) != codes.Unavailable {
		t.Errorf("no rules loaded: %v", err)
	}
	r.load(strategies)
	for _, wrong := range []*operate.Question{{}, request(), request(withLimit(1, 99, desc("a", "1")))} {
		if _, err := r.ask(operate.Look, wrong); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	elsewhere := request(desc("a", "1"))
	elsewhere.Domain = "x"
	in, err := r.ask(operate.Look, elsewhere)
	if err != nil || in.Descriptors[0].Why != "no rules for domain x" || in.Descriptors[0].Entries[0].Value != "1" {
		t.Errorf("got %+v, %v", in, err)
	}
}

func TestAStoreThatFailsIsAnErrorOfTheLimit(t *testing.T) {
	r := start(t, strategies, func(c *service.Config) { c.Store = failing{c.Store} })
	seen := only(t, r.inspect(operate.Look, request(desc("fixed", "a"))))
	if seen.Error != backends.ErrUnavailable.Error() || seen.Cell != nil || !strings.HasPrefix(seen.Key, "d|fixed=a") {
		t.Errorf("got %+v", seen)
	}
}

var everyStrategy = []string{"fixed", "first", "sliding", "log", "bucket", "gcra", "leaky"}

func TestResetEmptiesTheCell(t *testing.T) {
	r := start(t, strategies)
	for _, key := range everyStrategy {
		for range 2 {
			r.hit(withHits(10, desc(key, "a")))
		}
		r.hit(withHits(3, desc(key, "other")))
		was := changed(t, r.change(operate.Reset, request(desc(key, "a"))))
		if was.Err != nil || was.Before.Remaining != 0 || was.After == nil || was.After.Count != 0 || was.After.Remaining != 10 {
			t.Errorf("%s: %+v, then %+v, %v", key, was.Before, was.After, was.Err)
		}
		r.want(withHits(10, desc(key, "a")), answer{remaining: 0})
		if seen := only(t, r.inspect(operate.Look, request(desc(key, "other")))); seen.Count != 3 {
			t.Errorf("%s: another caller has %+v", key, seen.Cell)
		}
	}
}

func TestGrantAddsToWhatRemains(t *testing.T) {
	r := start(t, strategies)
	for _, key := range everyStrategy {
		for range 2 { // the second is denied; a fixed window counts it all the same
			r.hit(withHits(10, desc(key, "a")))
		}
		for remaining := int64(5); remaining <= 15; remaining += 5 {
			was := changed(t, r.change(operate.Grant(operate.Granting{Hits: 5}), request(desc(key, "a"))))
			if was.Err != nil || was.Before.Remaining != remaining-5 || was.After == nil || was.After.Remaining != remaining || was.After.Count+remaining != 10+was.After.Granted {
				t.Errorf("%s: %+v, then %+v, %v", key, was.Before, was.After, was.Err)
			}
		}
		r.want(withHits(15, desc(key, "a")), answer{remaining: 0})
		if s := r.hit(desc(key, "a")); !s.over {
			t.Errorf("%s: more hits pass than were granted", key)
		}
	}
}

// TestHitsLeftOfGrants: hits use up a grant before the limit, and the hits in use are
// never below 0.
func TestHitsLeftOfGrants(t *testing.T) {
	r := start(t, strategies)
	wants := func(key, when string, count, granted int64) {
		t.Helper()
		got := only(t, r.inspect(operate.Look, request(desc(key, "a")))).Usage
		if got != (explain.Usage{Count: count, Granted: granted, Remaining: 10 - count + granted}) {
			t.Errorf("%s, %s: %+v, want count %d, granted %d", key, when, got, count, granted)
		}
	}
	for _, key := range everyStrategy {
		for range 2 { // the second is denied; a fixed window counts it all the same
			r.hit(withHits(10, desc(key, "a")))
		}
		was := changed(t, r.change(operate.Grant(operate.Granting{Hits: 5}), request(desc(key, "a"))))
		if was.After.Count != 10 || was.After.Granted != 5 {
			t.Errorf("%s: after a grant %+v", key, was.After)
		}
		wants(key, "granted 5", 10, 5)
		r.hit(withHits(2, desc(key, "a")))
		wants(key, "2 used", 10, 3)
		r.change(operate.Grant(operate.Granting{Hits: 9}), request(desc(key, "a")))
		wants(key, "granted 9 more", 10, 12)
		r.hit(withHits(1, desc(key, "a")))
		wants(key, "1 more used", 10, 11)
		r.change(operate.Reset, request(desc(key, "a")))
		wants(key, "reset", 0, 0)
		r.hit(withHits(4, desc(key, "a")))
		wants(key, "4 used after the reset", 4, 0)
		r.change(operate.Grant(operate.Granting{Hits: 1}), request(desc(key, "a")))
		r.pass(3 * time.Minute)
		r.hit(withHits(2, desc(key, "a")))
		wants(key, "in another window", 2, 0)
	}
}

// TestABucketThatIsFullAgainHasNoGrant: more hits than the grant's have passed, or time.
func TestABucketThatIsFullAgainHasNoGrant(t *testing.T) {
	r := start(t, strategies)
	for _, key := range []string{"bucket", "gcra", "leaky"} {
		for _, hits := range []int64{5, 10, 12} {
			r.hit(withHits(10, desc(key, "a")))
			r.change(operate.Grant(operate.Granting{Hits: hits}), request(desc(key, "a")))
			r.hit(withHits(max(2, uint64(hits)-10), desc(key, "a")))
			r.pass(10 * time.Second)
			if got := only(t, r.inspect(operate.Look, request(desc(key, "a")))).Usage; got.Count != 0 || got.Granted != 0 || got.Remaining != 10 {
				t.Errorf("%s, granted %d: %+v", key, hits, got)
			}
		}
	}
}

// TestAGrantOfAnotherProcess is known by the hits beyond the limit only.
func TestAGrantOfAnotherProcess(t *testing.T) {
	var store backends.Store
	first := start(t, strategies, func(c *service.Config) { store = c.Store })
	second := start(t, strategies, func(c *service.Config) { c.Store = store })
	second.clock = first.clock
	for _, key := range everyStrategy {
		first.hit(withHits(3, desc(key, "a")))
		first.change(operate.Grant(operate.Granting{Hits: 5}), request(desc(key, "a")))
		if got := only(t, second.inspect(operate.Look, request(desc(key, "a")))).Usage; got.Count != 0 || got.Granted != 2 || got.Remaining != 12 {
			t.Errorf("%s: %+v", key, got)
		}
	}
}

func TestAGrantThatIsTooLargeChangesNothing(t *testing.T) {
	r := start(t, `domain: d
descriptors:
- key: two
  rate_limits: [{unit: minute, requests_per_unit: 10}, {unit: hour, requests_per_unit: 100}]
`)
	both := request(desc("two", "a"))
	r.hit(withHits(10, desc("two", "a")))
	for _, grant := range []struct {
		hits int64
		want string
	}{
		{101, "at most 100 (10 times the limit of 10)"}, {0, "want at least 1"}, {-5, "want at least 1"}, {1 << 62, "at most 100"},
	} {
		_, err := r.try(operate.Grant(operate.Granting{Hits: grant.hits}), both)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), grant.want) {
			t.Errorf("grant of %d: %v, want %q", grant.hits, err, grant.want)
		}
	}
	for _, l := range r.inspect(operate.Look, both)[0].Limits {
		if l.Usage.Count != 10 {
			t.Errorf("%+v after grants that were refused", l.Usage)
		}
	}
	// 11 times the limit is the most that may remain.
	r.change(operate.Grant(operate.Granting{Hits: 100}), both)
	if got := r.inspect(operate.Look, both)[0].Limits[0].Remaining; got != 100 {
		t.Fatalf("%d remain after a grant of 100", got)
	}
	_, err := r.try(operate.Grant(operate.Granting{Hits: 11}), both)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "at most 10 can be granted now") {
		t.Errorf("got %v", err)
	}
	r.change(operate.Grant(operate.Granting{Hits: 10}), both)
	if got := r.inspect(operate.Look, both)[0].Limits[0].Remaining; got != 110 {
		t.Errorf("%d remain after a grant of 10 more", got)
	}
}

// TestACellIsChangedOnce: one of the descriptors of a request that share a counter
// stands for all, and replaced limits keep their counters.
func TestACellIsChangedOnce(t *testing.T) {
	r := start(t, `domain: d
descriptors:
- {key: "p", value: "a*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: one, rate_limit: {unit: minute, requests_per_unit: 10, name: one}}
- {key: vip, rate_limit: {unlimited: true, replaces: [{name: one}]}}
`)
	r.hit(withHits(10, desc("p", "a1")))
	r.hit(withHits(10, desc("one", "x")))
	only := changed(t, r.change(operate.Grant(operate.Granting{Hits: 4}), request(desc("p", "a1"), desc("p", "a2"), desc("one", "x"), desc("vip", "x"))))
	if only.Rule != "d.p_a*" || only.After == nil || only.After.Remaining != 4 {
		t.Errorf("got %+v", only)
	}
	if seen := r.inspect(operate.Look, request(desc("one", "x")))[0].Limits[0]; seen.Count != 10 {
		t.Errorf("the replaced limit has %+v", seen.Cell)
	}
}

func TestAFailedChangeIsAnErrorOfTheLimit(t *testing.T) {
	r := start(t, strategies, func(c *service.Config) { c.Store = readOnly{c.Store} })
	for _, do := range []operate.Action{operate.Reset, operate.Grant(operate.Granting{Hits: 1})} {
		was := changed(t, r.change(do, request(desc("fixed", "a"))))
		if !errors.Is(was.Err, backends.ErrUnsupported) || was.Before == nil || was.After != nil {
			t.Errorf("got %+v", was)
		}
	}
}

// readOnly is a store that cannot reset or grant.
type readOnly struct{ backends.Store }

func (s readOnly) Apply(ctx context.Context, b *backends.Batch) error {
	if b.Ops[0].Verb.Operates() {
		return b.Fail(backends.ErrUnsupported)
	}
	return s.Store.Apply(ctx, b)
}

// TestResetOfASlidingWindow empties the window before, too.
func TestResetOfASlidingWindow(t *testing.T) {
	r := start(t, strategies)
	r.hit(withHits(10, desc("sliding", "a")))
	r.pass(time.Minute)
	was := changed(t, r.change(operate.Reset, request(desc("sliding", "a"))))
	if was.Before.Count == 0 || was.After.Count != 0 || was.After.Remaining != 10 {
		t.Errorf("%+v, then %+v", was.Before, was.After)
	}
	r.want(withHits(10, desc("sliding", "a")), answer{remaining: 0})
}

// TestAGrantEndsWithItsWindow: hits that are not used do not go into the next window.
func TestAGrantEndsWithItsWindow(t *testing.T) {
	r := start(t, strategies)
	for _, key := range everyStrategy {
		r.hit(desc(key, "a"))
		r.change(operate.Grant(operate.Granting{Hits: 50}), request(desc(key, "a")))
	}
	r.pass(2 * time.Minute)
	for _, key := range everyStrategy {
		if seen := only(t, r.inspect(operate.Look, request(desc(key, "a")))); seen.Remaining != 10 || seen.Count != 0 {
			t.Errorf("%s: %+v", key, seen.Cell)
		}
	}
}

func TestALimitOfNothingTakesNoGrant(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n- {key: never, rate_limit: {unit: minute, requests_per_unit: 0}}\n")
	_, err := r.try(operate.Grant(operate.Granting{Hits: 1}), request(desc("never", "a")))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "a limit of 0 takes no grant") {
		t.Errorf("got %v", err)
	}
}
