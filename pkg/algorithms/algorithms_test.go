package algorithms_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// epoch is a round day.
const epoch = int64(1_800_057_600_000_000)

// cells is the smallest store: the Go steps over maps.
type cells struct {
	cells map[string]backends.Cell
	logs  map[string]backends.Log
}

func newCells() *cells { return &cells{map[string]backends.Cell{}, map[string]backends.Log{}} }

func (c *cells) charge(l *algorithms.Limit, ch algorithms.Charge) algorithms.Decision {
	var op backends.Op
	l.Plan(&op, algorithms.Identity{ID: []byte("d|k")}, ch)
	var r backends.Reply
	if op.Kind == backends.List {
		c.logs[op.Key], r = c.logs[op.Key].Step(&op)
	} else {
		var prev int64
		if p := c.cells[op.Prev]; op.Prev != "" && op.Now < p.Until {
			prev = p.Value.Whole
		}
		c.cells[op.Key], r = c.cells[op.Key].Step(&op, prev)
	}
	return l.Judge(&op, &r)
}

func mustNew(t testing.TB, s algorithms.Spec) *algorithms.Limit {
	t.Helper()
	l, err := algorithms.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestNoDrift hammers meters at awkward rates: over any time they admit what
// the rate allows, to the hit.
func TestNoDrift(t *testing.T) {
	const decisions = 10_000_000
	for _, c := range []struct {
		requests  uint32
		window    time.Duration
		burst     uint32
		decisions int
	}{
		{7, time.Second, 2, decisions},
		{1, 365 * 24 * time.Hour, 2, decisions / 10},
		{999_983, time.Second, 10, decisions / 10},
		{1_000_000, time.Second, 2, decisions / 10},
		{4_294_967_295, time.Second, 1000, decisions / 10},
		{13, 30 * 24 * time.Hour, 3, decisions / 10},
	} {
		l := mustNew(t, algorithms.Spec{Strategy: algorithms.GCRA, Requests: c.requests, Window: c.window, Burst: c.burst})
		interval := float64(c.window.Microseconds()) / float64(c.requests)
		step := max(1, min(int64(interval/2.7), 150*365*24*3600*1_000_000/int64(c.decisions)))
		var cell backends.Cell
		var op backends.Op
		l.Plan(&op, algorithms.Identity{}, algorithms.Charge{Now: epoch, Cost: 1})
		op.Furthest = backends.NoMax
		ahead := op.Max.Whole - op.Now
		admitted := int64(0)
		for i := range int64(c.decisions) {
			op.Now = epoch + i*step
			op.Max.Whole = op.Now + ahead
			var r backends.Reply
			cell, r = cell.Step(&op, 0)
			admitted += r.Admitted
		}
		elapsed := float64(int64(c.decisions-1) * step)
		ideal := min(int64(elapsed/interval)+int64(c.burst), int64(c.decisions))
		if admitted < ideal-1-int64(c.burst) || admitted > ideal+1 {
			t.Errorf("%d per %v, burst %d: %d admitted in %d decisions, want %d", c.requests, c.window, c.burst, admitted, c.decisions, ideal)
		}
	}
}

// TestRaisedLimitKeepsItsCounters: 10 hits of 10 an hour, then 20 an hour. A
// count goes on; a bucket stays as empty as it was and fills at the new rate.
func TestRaisedLimitKeepsItsCounters(t *testing.T) {
	for s := range algorithms.Names() {
		spec := algorithms.Spec{Strategy: algorithms.Strategy(s), Requests: 10, Window: time.Hour}
		if spec.Strategy == algorithms.GCRA {
			spec.Burst = 10
		}
		c := newCells()
		for range 10 {
			c.charge(mustNew(t, spec), algorithms.Charge{Now: epoch, Cost: 1})
		}
		if c.charge(mustNew(t, spec), algorithms.Charge{Now: epoch, Cost: 1, AdmittedOnly: true}).Allowed {
			t.Fatalf("%v: an eleventh hit passes 10", spec.Strategy)
		}
		spec.Requests, spec.Burst = 20, spec.Burst*2
		d := c.charge(mustNew(t, spec), algorithms.Charge{Now: epoch, Cost: 1})
		counts := spec.Strategy <= algorithms.SlidingLog
		if counts && (!d.Allowed || d.Remaining != 9) || !counts && d.RetryAfter != 3*time.Minute {
			t.Errorf("%v: raised to 20 after 10 hits: %+v", spec.Strategy, d)
		}
	}
}

// TestKeys: what must not share a counter does not, what must does.
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
	if op.Key != "{d|k=v|sw1h}500016" || op.Prev != "{d|k=v|sw1h}500015" {
		t.Errorf("keys of a sliding window: %q and %q", op.Key, op.Prev)
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
				r := backends.Reply{Admitted: 1, Value: backends.Amount{Whole: epoch}}
				l.Judge(&op, &r)
			}
		})
	}
}
