package operate_test

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/grants"
	"example.org/rls/pkg/service/operate"
)

// keeps has a rig's store keep grants until a time. Its operations go through the store of the service.
func (r *rig) keeps(store backends.Store) *rig {
	k := grants.NewKeeper(grants.Options{Store: store.(backends.Notes), Name: "grants", Log: slog.New(slog.DiscardHandler), Changed: func(m *descriptors.Grants, changed []*descriptors.Grant) {
		r.service.SetGrants(m)
		r.GrantsChanged(changed)
	}})
	r.Keep(k)
	return r
}

func keeping(t *testing.T, rules string, change ...func(*service.Config)) *rig {
	var store backends.Store
	r := start(t, rules, append([]func(*service.Config){func(c *service.Config) { store = c.Store }}, change...)...)
	return r.keeps(store)
}

func until(hits int64, d time.Duration) operate.Action {
	return operate.Grant(operate.Granting{Hits: hits, For: d, Who: "ann"})
}

func rate(n uint32, unit descriptors.Unit, d time.Duration) operate.Action {
	return operate.Grant(operate.Granting{Rate: &descriptors.Rate{RequestsPerUnit: n, Unit: unit}, For: d, Who: "ann"})
}

// TestGrantUntil: more hits pass in each window until the time, and then as many as before.
func TestGrantUntil(t *testing.T) {
	r := keeping(t, strategies)
	for _, key := range []string{"fixed", "first", "sliding", "log", "calendar"} {
		r.hit(withHits(8, desc(key, "a")))
		was := changed(t, r.change(until(20, 90*time.Minute), request(desc(key, "a"))))
		if was.Err != nil || was.Before.Remaining != 2 || was.After.Remaining != 22 || was.Note != "" || was.Grant.ID == "" {
			t.Errorf("%s: %+v", key, was)
		}
		r.want(withHits(20, desc(key, "a")), answer{remaining: 2})
		r.want(desc(key, "b"), answer{remaining: 9}) // nobody else
		limit := only(t, r.inspect(operate.Look, request(desc(key, "a"))))
		if limit.Limit != 30 || limit.Count != 28 || limit.Remaining != 2 || limit.Grant == nil || limit.Grant.ID != was.Grant.ID {
			t.Errorf("%s: the counter is %+v, %+v", key, limit.Cell, limit.Grant)
		}
	}
	if all, err := r.Grants(t.Context()); err != nil || len(all) != 5 || all[0].Hits != 20 || !all[0].Until.Equal(all[0].Ends) || all[0].Error != "" {
		t.Errorf("in force %+v, %v", all, err)
	}
	r.pass(time.Hour)
	r.want(withHits(30, desc("fixed", "a")), answer{})
	r.pass(30 * time.Minute)
	for _, key := range []string{"fixed", "first"} {
		r.want(desc(key, "a"), answer{remaining: 9})
	}
	if all, err := r.Grants(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after the end %+v, %v", all, err)
	}
}

// TestARaisedBucketBeginsFull, and the old one counts on at the end.
func TestARaisedBucketBeginsFull(t *testing.T) {
	r := keeping(t, strategies)
	r.hit(withHits(10, desc("bucket", "a")))
	made := changed(t, r.change(until(600, time.Hour), request(desc("bucket", "a"))))
	if made.Note == "" || made.After.Remaining != 10 {
		t.Errorf("%+v", made)
	}
	r.want(withHits(10, desc("bucket", "a")), answer{})
	r.pass(500 * time.Millisecond) // 5 at 11 a second
	r.want(withHits(5, desc("bucket", "a")), answer{})
	if _, err := r.Revoke(t.Context(), made.Grant.ID); err != nil {
		t.Fatal(err)
	}
	r.want(desc("bucket", "a"), answer{over: true})
}

// TestALimitUntil takes the place of the rule's, also with another window.
func TestALimitUntil(t *testing.T) {
	r := keeping(t, strategies)
	r.hit(withHits(10, desc("fixed", "a")))
	first := changed(t, r.change(rate(100, descriptors.Minute, time.Hour), request(desc("fixed", "a"))))
	r.want(withHits(90, desc("fixed", "a")), answer{})
	again := changed(t, r.change(rate(1, descriptors.Second, time.Hour), request(desc("fixed", "a")))) // the later takes the place
	if again.Note == "" || again.Before.Count != 100 {
		t.Errorf("%+v", again)
	}
	r.want(desc("fixed", "a"), answer{})
	r.want(desc("fixed", "a"), answer{over: true})
	if _, err := r.Revoke(t.Context(), first.Grant.ID); status.Code(envoy.Error(err)) != codes.NotFound {
		t.Errorf("the earlier grant is in force: %v", err)
	}
	if was, err := r.Revoke(t.Context(), again.Grant.ID); err != nil || was.Rule != "d.fixed" || was.Key == "" {
		t.Errorf("%+v, %v", was, err)
	}
	r.want(desc("fixed", "a"), answer{over: true})
}

func TestWrongGrantsUntil(t *testing.T) {
	r := keeping(t, strategies+"- key: two\n  rate_limits: [{unit: minute, requests_per_unit: 10, name: short}, {unit: hour, requests_per_unit: 100}]\n"+
		"- {key: none, rate_limit: {unit: minute, requests_per_unit: 0}}\n")
	past := time.UnixMicro(r.clock.Load()).Add(-time.Second)
	for _, c := range []struct {
		do   operate.Action
		of   service.Descriptor
		want string
	}{
		{until(101, time.Hour), desc("fixed", "a"), "at most 100 (10 times the limit of 10)"},
		{until(0, time.Hour), desc("fixed", "a"), "want at least 1"},
		{until(5, 31*24*time.Hour+time.Second), desc("fixed", "a"), "want at most 31 days"},
		{operate.Grant(operate.Granting{Hits: 5, Until: past}), desc("fixed", "a"), "which is past"},
		{rate(101, descriptors.Minute, time.Hour), desc("fixed", "a"), "101 per minute is too much: a grant has at most 10 times the rate of the limit of 10 per minute"},
		{rate(2, descriptors.Second, time.Hour), desc("fixed", "a"), "2 per second is too much"},
		{rate(0, descriptors.Minute, time.Hour), desc("fixed", "a"), "want at least 1"},
		{rate(10, descriptors.Hour, time.Hour), desc("calendar", "a"), "calendar"},
		{until(5, time.Hour), desc("two", "a"), "\"only\" names it, one of short, 100 per hour"},
		{until(5, time.Hour), desc("none", "a"), "a limit of 0 takes no grant"},
		{until(5, time.Hour), withLimit(7, descriptors.Minute, desc("fixed", "a")), "bring a limit of 7 per minute"},
	} {
		if _, err := r.try(c.do, request(c.of)); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.do, err, c.want)
		}
	}
	if all, err := r.Grants(t.Context()); err != nil || len(all) != 0 || r.service.Grants() != nil {
		t.Errorf("in force %+v, %v", all, err)
	}
	// The cap is that of the rule's limit, whatever was granted before.
	r.change(until(100, time.Hour), request(desc("fixed", "a")))
	if _, err := r.try(until(101, time.Hour), request(desc("fixed", "a"))); err == nil {
		t.Error("a grant of 10 times a granted limit")
	}
	if _, err := r.try(operate.Grant(operate.Granting{Hits: 101}), request(desc("fixed", "a"))); err == nil {
		t.Error("a grant for the window of 10 times a granted limit")
	}
	only := operate.Grant(operate.Granting{Hits: 5, For: time.Hour, Only: "100 per hour"})
	if was := changed(t, r.change(only, request(desc("two", "a")))); was.After.Remaining != 105 {
		t.Errorf("%+v", was)
	}
	r.want(desc("two", "a"), answer{remaining: 9})
	plain := start(t, strategies)
	if _, err := plain.try(until(5, time.Hour), request(desc("fixed", "a"))); status.Code(err) != codes.Unimplemented {
		t.Errorf("a store that keeps none: %v", err)
	}
	if _, err := plain.Revoke(t.Context(), "x"); status.Code(envoy.Error(err)) != codes.Unimplemented {
		t.Errorf("a store that keeps none: %v", err)
	}
}

// TestAGrantWhoseLimitIsGone says so, and acts again when the limit is back.
func TestAGrantWhoseLimitIsGone(t *testing.T) {
	r := keeping(t, strategies)
	r.change(until(20, time.Hour), request(desc("fixed", "a")))
	for rules, want := range map[string]string{
		"domain: d\ndescriptors:\n- {key: fixed, rate_limit: {unit: hour, requests_per_unit: 10}}\n":  "no such limit",
		"domain: d\ndescriptors:\n- {key: other, rate_limit: {unit: hour, requests_per_unit: 10}}\n":  "no such limit",
		"domain: e\ndescriptors:\n- {key: other, rate_limit: {unit: hour, requests_per_unit: 10}}\n":  "no such limit",
		"domain: d\ndescriptors:\n- {key: fixed, rate_limit: {unit: minute, requests_per_unit: 1}}\n": "20 hits are too many",
	} {
		r.load(rules)
		if all, err := r.Grants(t.Context()); err != nil || len(all) != 1 || !strings.Contains(all[0].Error, want) {
			t.Errorf("%q: %+v, %v", want, all, err)
		}
	}
	r.load(strategies)
	r.want(desc("fixed", "a"), answer{remaining: 29})
}

// TestGrantsOfHashedKeys are found, though the store has hashes in place of values.
func TestGrantsOfHashedKeys(t *testing.T) {
	r := keeping(t, strategies+"- {key: exact, value: v, rate_limit: {unit: minute, requests_per_unit: 10}}\n", func(c *service.Config) { c.Values = service.NewValueHash([]byte("a secret of 16 bytes")) })
	for _, d := range []service.Descriptor{desc("fixed", "ann"), desc("exact", "v")} {
		made := changed(t, r.change(until(20, time.Hour), request(d)))
		r.want(d, answer{remaining: 29})
		if all, err := r.Grants(t.Context()); err != nil || all[0].Error != "" || strings.Contains(all[0].Key+made.Grant.Caller, "ann") || all[0].Key != made.Key {
			t.Errorf("%+v, %v", all[0], err)
		}
		r.pass(time.Microsecond)
	}
}

// forgets is a store with a memory, which notes the keys that it is to forget.
type forgets struct {
	backends.Store
	keys []string
}

func (f *forgets) Forget(op *backends.Op) { f.keys = append(f.keys, op.Key) }

func (f *forgets) ForgetAmong(string, func([]string) []backends.Op) {}

// TestAChangeOfGrantsDropsWhatThisProcessRemembers of the counters of both limits.
func TestAChangeOfGrantsDropsWhatThisProcessRemembers(t *testing.T) {
	memory := new(forgets)
	r := keeping(t, strategies, func(c *service.Config) { memory.Store, c.Store = c.Store, memory })
	made := changed(t, r.change(rate(1, descriptors.Second, time.Hour), request(desc("sliding", "a"))))
	want := []string{"d|sliding=a|sw1s", "d|sliding=a|sw1m"}
	if !slices.Equal(memory.keys, want) {
		t.Errorf("a grant: forgot %q, want %q", memory.keys, want)
	}
	memory.keys = nil
	if _, err := r.Revoke(t.Context(), made.Grant.ID); err != nil || !slices.Equal(memory.keys, want) {
		t.Errorf("its end: forgot %q, want %q, %v", memory.keys, want, err)
	}
}

// TestDecidingWhileGrantsChange: 64 callers decide by the limit of the rule or by that of a grant.
func TestDecidingWhileGrantsChange(t *testing.T) {
	r := keeping(t, "domain: d\ndescriptors:\n- key: user\n  rate_limits: [{unit: year, requests_per_unit: 1000000}, {unit: minute, requests_per_unit: 1000000, strategy: token_bucket}]\n")
	var callers sync.WaitGroup
	done := make(chan struct{})
	for i := range 64 {
		callers.Go(func() {
			d := request(desc("user", string(rune('a'+i%4))))
			for {
				select {
				case <-done:
					return
				default:
				}
				o, err := r.service.Evaluate(t.Context(), &d.Request)
				if err != nil {
					t.Error(err)
					return
				}
				if n := o.Verdicts[0].Limit.Requests; n != 1_000_000 && (n < 1_000_001 || n > 1_000_100) {
					t.Errorf("decided by a limit of %d", n)
				}
				o.Release()
			}
		})
	}
	for i := range 100 {
		do := operate.Grant(operate.Granting{Hits: int64(i%100 + 1), For: time.Hour, Only: "1000000 per 365 days"})
		made := changed(t, r.change(do, request(desc("user", string(rune('a'+i%4))))))
		if i%3 == 0 {
			if _, err := r.Revoke(t.Context(), made.Grant.ID); err != nil {
				t.Error(err)
			}
		}
		if i%10 == 0 {
			if _, err := r.Grants(t.Context()); err != nil {
				t.Error(err)
			}
			r.pass(time.Second)
		}
	}
	close(done)
	callers.Wait()
}
