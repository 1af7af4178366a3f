package algorithms_test

import (
	"context"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/test/backendtest"
)

// epoch is a round day.
const epoch = int64(1_800_057_600_000_000)

// cells is a store in which everything is decided for one descriptor.
type cells struct{ *backendtest.Model }

func newCells() cells { return cells{backendtest.NewModel()} }

func (c cells) charge(l *algorithms.Limit, ch algorithms.Charge) algorithms.Decision {
	b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
	l.Plan(&b.Ops[0], algorithms.Identity{ID: []byte("d|k")}, ch)
	_ = c.Apply(context.Background(), &b) // never fails
	return l.Judge(&b.Ops[0], &b.Replies[0])
}

func mustNew(t testing.TB, s algorithms.Spec) *algorithms.Limit {
	t.Helper()
	l, err := algorithms.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNoDrift plays long traffic on meters at awkward rates. After t µs exactly
// burst + floor(t × requests / window) hits have passed: the next one passes at
// the very microsecond at which it is due, and not one before.
func TestNoDrift(t *testing.T) {
	for _, c := range []struct {
		requests uint32
		window   time.Duration
		burst    uint32
		hits     int64
	}{
		{7, time.Second, 2, 500_000},
		{1, 365 * 24 * time.Hour, 2, 50}, // a step in 50 years
		{999_983, time.Second, 10, 200_000},
		{1_000_000, time.Second, 2, 200_000},
		{4_294_967_295, time.Second, 10_000, 500_000},
		{13, 30 * 24 * time.Hour, 3, 200},
	} {
		l := mustNew(t, algorithms.Spec{Strategy: algorithms.GCRA, Requests: c.requests, Window: c.window, Burst: c.burst})
		window, requests := c.window.Microseconds(), int64(c.requests)
		var cell backends.Cell
		var op backends.Op
		l.Plan(&op, algorithms.Identity{}, algorithms.Charge{Now: epoch, Cost: 1})
		ahead := op.Max.Whole - op.Now
		passes := func(at int64) bool {
			op.Now, op.Max.Whole, op.Full.Whole = at, at+ahead, ahead
			var r backends.Reply
			cell, r = cell.Step(&op)
			return r.Admitted == 1
		}
		admitted, last := int64(0), int64(0)
		for elapsed := int64(0); admitted < c.hits && !t.Failed(); {
			if before := elapsed - 1; before > last && passes(epoch+before) {
				t.Errorf("%d per %v: hit %d passes 1 µs too soon, after %d µs", c.requests, c.window, admitted+1, before)
			}
			for passes(epoch + elapsed) {
				admitted++
			}
			gained := new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(requests))
			want := int64(c.burst) + gained.Div(gained, big.NewInt(window)).Int64()
			if admitted != want {
				t.Errorf("%d per %v, burst %d: %d hits have passed after %d µs, want %d", c.requests, c.window, c.burst, admitted, elapsed, want)
			}
			// The next one is due when requests × t reaches the next multiple of window.
			due := new(big.Int).Mul(big.NewInt(want-int64(c.burst)+1), big.NewInt(window))
			due.Add(due, big.NewInt(requests-1))
			last, elapsed = elapsed, max(elapsed+1, due.Div(due, big.NewInt(requests)).Int64())
		}
	}
}

// TestTwiceInARefusedRequest: the second of two huge costs is denied because of
// the first, which is not charged either, so the cell in the reply has room.
func TestTwiceInARefusedRequest(t *testing.T) {
	for s := range algorithms.Names() {
		spec := algorithms.Spec{Strategy: algorithms.Strategy(s), Requests: 1<<32 - 1, Window: algorithms.MaxWindow}
		cost := uint64(3_000_000_000)
		if spec.Strategy == algorithms.SlidingLog || spec.Strategy == algorithms.Concurrency {
			spec.Requests, cost = algorithms.MaxLogRequests, 6_000
		}
		if spec.Strategy == algorithms.GCRA {
			spec.Burst = spec.Requests
		}
		l, c := mustNew(t, spec), newCells()
		c.charge(l, algorithms.Charge{Now: epoch, Cost: 1})
		b := backends.Batch{AllOrNothing: true, Ops: make([]backends.Op, 2), Replies: make([]backends.Reply, 2)}
		for i := range b.Ops {
			l.Plan(&b.Ops[i], algorithms.Identity{ID: []byte("d|k")}, algorithms.Charge{Now: epoch, Cost: cost, AdmittedOnly: true})
		}
		if err := c.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		first, second := l.Judge(&b.Ops[0], &b.Replies[0]), l.Judge(&b.Ops[1], &b.Replies[1])
		if !first.Allowed || second.Allowed || second.Remaining != int64(spec.Requests)-1 || second.RetryAfter > 2*spec.Window {
			t.Errorf("%v: %+v, then %+v", spec.Strategy, first, second)
		}
	}
}

// TestARefusedRequestLowersTheBucket: a bucket that a clock an hour ahead has emptied is
// lowered also by a request that another limit refuses.
func TestARefusedRequestLowersTheBucket(t *testing.T) {
	bucket := mustNew(t, algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Minute})
	zero, c := mustNew(t, algorithms.Spec{Window: time.Minute}), newCells()
	c.charge(bucket, algorithms.Charge{Now: epoch + time.Hour.Microseconds(), Cost: 10})
	b := backends.Batch{AllOrNothing: true, Ops: make([]backends.Op, 2), Replies: make([]backends.Reply, 2)}
	bucket.Plan(&b.Ops[0], algorithms.Identity{ID: []byte("d|k")}, algorithms.Charge{Now: epoch, Cost: 1})
	zero.Plan(&b.Ops[1], algorithms.Identity{ID: []byte("d|k")}, algorithms.Charge{Now: epoch, Cost: 1})
	_ = c.Apply(t.Context(), &b) // never fails
	later := epoch + (6 * time.Second).Microseconds()
	if d := c.charge(bucket, algorithms.Charge{Now: later, Cost: 1}); !b.Refused || !d.Allowed {
		t.Errorf("refused %v, and then %+v; want one token after 6 s", b.Refused, d)
	}
}

// TestKeys: limits that differ in strategy or window have different keys, and so have
// buckets that differ in their terms. Other raised limits keep their key.
func TestKeys(t *testing.T) {
	key := func(s algorithms.Spec, now int64) string {
		var op backends.Op
		mustNew(t, s).Plan(&op, algorithms.Identity{Prefix: "p:", ID: []byte("d|k=v")}, algorithms.Charge{Now: now, Cost: 1})
		return op.Key
	}
	base := algorithms.Spec{Requests: 10, Window: time.Hour}
	if got, want := key(base, epoch), "p:d|k=v|1h|500016"; got != want {
		t.Errorf("a fixed window's key is %q, want %q", got, want)
	}
	raised := base
	raised.Requests = 1000
	if key(base, epoch) != key(raised, epoch) {
		t.Error("the allowed count is part of the key")
	}
	seen := map[string]algorithms.Spec{}
	for s := range algorithms.Names() {
		for _, w := range []time.Duration{time.Second, time.Minute, 15 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour} {
			spec := algorithms.Spec{Strategy: algorithms.Strategy(s), Requests: 10, Window: w}
			k := key(spec, epoch)
			if other, ok := seen[k]; ok {
				t.Errorf("%+v and %+v share %q", spec, other, k)
			}
			seen[k] = spec
		}
	}
	var op backends.Op
	mustNew(t, algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 1, Window: time.Hour}).
		Plan(&op, algorithms.Identity{ID: []byte("d|k=v")}, algorithms.Charge{Now: epoch, Cost: 1})
	if op.Key != "d|k=v|sw1h" || op.Mark != 500016 {
		t.Errorf("key and number of a sliding window: %q and %d", op.Key, op.Mark)
	}
	for want, spec := range map[string]algorithms.Spec{
		"p:{d|k=v}|1h|500016":          base,
		"p:{d|k=v}|sw1h":               {Strategy: algorithms.SlidingWindow, Requests: 1, Window: time.Hour},
		"p:{d|k=v}|tb1h:10:10":         {Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Hour},
		"p:{d|k=v}|gcra30d:10:1":       {Strategy: algorithms.GCRA, Requests: 10, Window: 30 * 24 * time.Hour},
		"p:{d|k=v}|lb1h:10:2:12000000": {Strategy: algorithms.LeakyBucket, Requests: 10, Window: time.Hour, Burst: 2, MaxDelay: 12 * time.Second},
	} {
		mustNew(t, spec).Plan(&op, algorithms.Identity{Prefix: "p:", ID: []byte("d|k=v"), OneSlot: true}, algorithms.Charge{Now: epoch, Cost: 1})
		if op.Key != want {
			t.Errorf("in one slot: key %q, want %q", op.Key, want)
		}
	}
	month := algorithms.Spec{Requests: 1, Window: 30 * 24 * time.Hour, Calendar: algorithms.Calendar{On: true, Zone: "Europe/Berlin"}}
	for _, start := range []string{"1767222000", "1769900400"} { // January and February 2026 in Berlin
		second, _ := strconv.ParseInt(start, 10, 64)
		if got, want := key(month, second*1_000_000), "p:d|k=v|cmonth|"+start; got != want {
			t.Errorf("a month's key is %q, want %q", got, want)
		}
	}
	mustNew(t, base).Plan(&op, algorithms.Identity{Prefix: "p:", ID: []byte("d_k_v_"), ByStart: true}, algorithms.Charge{Now: epoch, Cost: 1})
	if want := "p:d_k_v_1800057600"; op.Key != want {
		t.Errorf("a key by the window's start is %q, want %q", op.Key, want)
	}
}

func TestSpecErrors(t *testing.T) {
	for _, c := range []struct {
		spec  algorithms.Spec
		field string
		says  string
	}{
		{algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 10_001, Window: time.Hour}, "requests_per_unit", "sliding_window"},
		{algorithms.Spec{Requests: 1, Window: time.Hour, Burst: 2}, "burst", "token_bucket"},
		{algorithms.Spec{Requests: 1, Window: time.Hour, MaxDelay: time.Second}, "max_delay", "leaky_bucket"},
		{algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 1, Window: time.Hour, MaxDelay: time.Hour}, "max_delay", "1m"},
		{algorithms.Spec{Strategy: algorithms.GCRA, Requests: 1, Window: time.Hour, FromFirstHit: true}, "window", "fixed_window"},
		{algorithms.Spec{Requests: 1, Window: time.Hour, Extend: true}, "extend", "from_first_hit"},
		{algorithms.Spec{Requests: 1, Window: time.Hour, Calendar: algorithms.Calendar{On: true}}, "unit", "day, week, month or year"},
		{algorithms.Spec{Requests: 1, Window: 24 * time.Hour, FromFirstHit: true, Calendar: algorithms.Calendar{On: true}}, "window", "calendar"},
		{algorithms.Spec{Requests: 1, Window: 24 * time.Hour, Calendar: algorithms.Calendar{On: true, Zone: "Local"}}, "timezone", "Local"},
		{algorithms.Spec{Requests: 1, Window: 7 * 24 * time.Hour, Calendar: algorithms.Calendar{On: true, WeekStarts: 8}}, "window", "out of range"},
		{algorithms.Spec{Requests: 1}, "unit_multiplier", "10 years"},
		{algorithms.Spec{Requests: 1, Window: 11 * 365 * 24 * time.Hour}, "unit_multiplier", "10 years"},
		{algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 1, Window: 365 * 24 * time.Hour, Burst: 1000}, "burst", "100 years"},
		{algorithms.Spec{Strategy: 99, Requests: 1, Window: time.Hour}, "strategy", "99"},
	} {
		_, err := algorithms.New(c.spec)
		var se *algorithms.SpecError
		if !errors.As(err, &se) || se.Field != c.field || !strings.Contains(se.Message, c.says) {
			t.Errorf("%+v: %v, want an error of %s that says %q", c.spec, err, c.field, c.says)
		}
	}
	if _, err := algorithms.ParseStrategy("tokenbucket"); err == nil || !strings.Contains(err.Error(), "token_bucket") {
		t.Errorf("an unknown strategy: %v", err)
	}
	for _, name := range algorithms.Names() {
		if s, err := algorithms.ParseStrategy(name); err != nil || s.String() != name {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func BenchmarkPlanAndJudge(b *testing.B) {
	for s, name := range algorithms.Names() {
		b.Run(name, func(b *testing.B) {
			l := mustNew(b, algorithms.Spec{Strategy: algorithms.Strategy(s), Requests: 10, Window: time.Hour})
			id := algorithms.Identity{ID: []byte("bench|user=v0-1234")}
			b.ReportAllocs()
			var op backends.Op
			for b.Loop() {
				l.Plan(&op, id, algorithms.Charge{Now: epoch, Cost: 1})
				r := backends.Reply{Now: epoch, Admitted: 1, Value: backends.Amount{Whole: epoch}}
				l.Judge(&op, &r)
			}
		})
	}
}

// TestOnlyAQueueDelays: an allowed hit waits for its turn only with max_delay, also
// if its meter lies further ahead than the burst, as that of a lease does when the
// store's clock was set back.
func TestOnlyAQueueDelays(t *testing.T) {
	const now, ahead = 1_800_000_000_000_000, 60_000_000
	for delay, want := range map[time.Duration]time.Duration{0: 0, time.Minute: 50 * time.Second} {
		l := mustNew(t, algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 1, Window: 10 * time.Second, Burst: 1, MaxDelay: delay})
		var op backends.Op
		l.Plan(&op, algorithms.Identity{ID: []byte("a")}, algorithms.Charge{Now: now, Cost: 1, Patience: ahead})
		d := l.Judge(&op, &backends.Reply{Now: now, Admitted: 1, Value: backends.Amount{Whole: now + ahead}})
		if !d.Allowed || d.Delay != want {
			t.Errorf("max_delay %v: allowed %v, delay %v; want %v", delay, d.Allowed, d.Delay, want)
		}
	}
}

// TestAQueueChargesTheWholeCost: a cost above the burst that may wait for its turn
// takes as many turns as it has hits.
func TestAQueueChargesTheWholeCost(t *testing.T) {
	l := mustNew(t, algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 1, Window: time.Second, Burst: 1, MaxDelay: 30 * time.Second})
	store := newCells()
	charge := algorithms.Charge{Now: epoch, Cost: 25, Patience: 1 << 40}
	if d := store.charge(l, charge); !d.Allowed || d.Delay != 24*time.Second {
		t.Errorf("25 hits: %+v", d)
	}
	charge.Cost = 7
	if d := store.charge(l, charge); d.Allowed || d.Reset != 25*time.Second {
		t.Errorf("7 hits more, which would wait for 31s: %+v", d)
	}
	charge.Cost = 1 << 40
	if d := newCells().charge(l, charge); d.Allowed {
		t.Errorf("a cost above all: %+v", d)
	}
}
