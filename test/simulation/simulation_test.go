// Package simulation_test runs replicas of the service and a store that fails, on
// one clock and one seed, and checks what callers are told.
//
// The replicas are the program's own code: rules, strategies, the decision with
// its policies, leases, the stand-in and the local cache. The network, the server
// and the callers are simulated, with delays, losses, restarts, failovers to a
// replica that is behind, outages, and clocks that differ and jump. A seed that
// fails is printed with its trace; it gives the same run each time.
package simulation_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run this seed alone and print its trace")
	seeds   = flag.Int("seeds", 200, "seeds to run")
	last    = flag.Duration("for", 0, "run random seeds for so long, in place of -seeds")
)

// simulate runs one seed.
func simulate(seed uint64, traced bool) *world {
	w := newWorld(seed, traced)
	var c *calendar
	if w.chance(3) {
		c = w.randomCalendar()
	}
	o := randomOptions(w)
	rules := make([]rule, 1+w.rng.IntN(4))
	for i := range rules {
		rules[i] = randomRule(w.rng, o, c)
	}
	text := yamlOf(rules, []string{"always", "admitted"}[w.rng.IntN(2)])
	w.say("rules:\n%s", text)
	w.say("%+v", *o)
	tree := compile(text)
	s := newServer(w)
	or := newOracle(w, rules, o, s)
	var all []*process
	for i := range o.processes {
		all = append(all, newProcess(w, fmt.Sprintf("p%d", i), s, o, tree, or))
	}
	length := w.between(5*time.Second, 20*time.Second)
	w.disturb(s, o, length)
	every(w, 25_000, length+5_000_000, func() {
		for _, p := range all {
			p.tick()
		}
	})
	if o.follows {
		every(w, clockEvery, length, func() {
			for _, p := range all {
				p.measure()
			}
		})
	}
	w.visit(all, rules, length)
	w.operate(all, rules, length)
	w.run()
	or.conclude()
	return w
}

// every plans do each so many µs until the end.
func every(w *world, us, end int64, do func()) {
	if w.now-w.start < end {
		w.after(us, func() {
			do()
			every(w, us, end, do)
		})
	}
}

func randomOptions(w *world) *options {
	o := &options{
		processes:  1 + w.rng.IntN(4),
		follows:    !w.chance(3),
		localCache: w.chance(3),
		leases:     w.chance(3),
		local:      w.chance(3),
	}
	o.network.min = 100 * time.Microsecond
	o.network.max = []time.Duration{200 * time.Microsecond, 2 * time.Millisecond, 60 * time.Millisecond}[w.rng.IntN(3)]
	o.network.loses = []int{0, 0, 100, 20}[w.rng.IntN(4)]
	if !o.follows {
		o.skew = []time.Duration{time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond}[w.rng.IntN(3)]
	}
	return o
}

// disturb plans the faults of the server.
func (w *world) disturb(s *server, o *options, length int64) {
	if w.chance(2) {
		s.replica = newServer(w)
		every(w, 10_000, length, func() {
			if s.replica != nil {
				s.replicate(w.rng.IntN(20))
			}
		})
	}
	for range w.rng.IntN(4) {
		at := w.rng.Int64N(length)
		switch kind := w.rng.IntN(6); kind {
		case 0, 1, 2:
			w.after(at, func() {
				s.fault([]state{down, frozen}[w.rng.IntN(2)], w.between(20*time.Millisecond, 4*time.Second))
			})
		case 3:
			w.after(at, s.restart)
		case 4:
			w.after(at, func() {
				if s.replica != nil {
					s.failover()
				}
			})
		case 5:
			if o.follows {
				w.after(at, func() { s.step(w.between(-time.Minute, time.Minute)) })
			}
		}
	}
}

// visit plans the requests: bursts of some callers on a process.
func (w *world) visit(all []*process, rules []rule, length int64) {
	for range 10 + w.rng.IntN(20) {
		begin, rule, user := w.rng.Int64N(length), w.rng.IntN(len(rules)), w.rng.IntN(2)
		pace := w.between(10*time.Microsecond, 30*time.Millisecond)
		at := begin
		for range 1 + w.rng.IntN(30) {
			at += w.rng.Int64N(pace)
			p, req := all[w.rng.IntN(len(all))], w.request(rules, rule, user)
			w.after(at, func() { w.spawn(func() { w.call(p, rules, req) }) })
		}
	}
}

// operate plans resets and grants, which an operator asks a process for.
func (w *world) operate(all []*process, rules []rule, length int64) {
	if w.chance(2) {
		return
	}
	for range 1 + w.rng.IntN(4) {
		p, rule, user := all[w.rng.IntN(len(all))], w.rng.IntN(len(rules)), w.rng.IntN(2)
		ask := &operate.Question{Request: service.Request{Domain: "sim", Descriptors: []service.Descriptor{{Entries: w.entries(rules, rule, user)}}}}
		name, do := "reset", operate.Reset
		if w.chance(2) {
			hits := 1 + w.rng.Int64N(2*int64(rules[rule].spec.Requests))
			name, do = fmt.Sprint("grant ", hits), operate.Grant(operate.Granting{Hits: hits})
		}
		w.after(w.rng.Int64N(length), func() {
			w.spawn(func() {
				_, _, err := p.operator.Change(context.Background(), ask, do)
				w.say("%s: %s: %v", p.name, name, err)
			})
		})
	}
}

// request asks for one rule, and sometimes for another one as well.
func (w *world) request(rules []rule, rule, user int) *service.Request {
	ask := &service.Request{Domain: "sim", Descriptors: []service.Descriptor{w.descriptor(rules, rule, user)}}
	if w.chance(3) {
		if other := w.rng.IntN(len(rules)); other != rule {
			ask.Descriptors = append(ask.Descriptors, w.descriptor(rules, other, user))
		}
	}
	return ask
}

func (w *world) descriptor(rules []rule, rule, user int) service.Descriptor {
	d := service.Descriptor{Entries: w.entries(rules, rule, user)}
	if rules[rule].spec.Reserve.TTL > 0 {
		d.Hits, d.Refund = new(w.rng.Uint64N(maxCost+1)), w.chance(8)
		return d
	}
	switch w.rng.IntN(16) {
	case 0:
		d.Hits = new(uint64(0))
	case 1:
		d.Hits = new(1 + w.rng.Uint64N(maxCost))
	case 2:
		if user == 1 || rules[rule].spec.Strategy == algorithms.Concurrency { // else alice never gets anything back
			d.Hits, d.Refund = new(1+w.rng.Uint64N(3)), true
		}
	case 3:
		r := &rules[rule]
		if r.also != nil || r.spec.Overdraft > 0 || r.spec.Window != time.Second || !(r.meter() || r.clocked() && !r.lease) {
			break
		}
		d.Limit = &service.Override{RequestsPerUnit: r.spec.Requests + w.rng.Uint32N(5), Unit: descriptors.Second, Multiplier: 1}
		if r.meter() {
			d.Limit.RequestsPerUnit = []uint32{0, 1, 1000}[w.rng.IntN(3)]
		}
	}
	return d
}

// maxCost is the most hits of a request.
const maxCost = 5

// entries are those of a descriptor. The ID of a reservation is new, or one of the last three.
func (w *world) entries(rules []rule, rule, user int) []descriptors.Entry {
	e := []descriptors.Entry{{Key: fmt.Sprintf("r%d", rule), Value: []string{"alice", "bob"}[user]}}
	if rules[rule].spec.Reserve.TTL > 0 {
		if w.chance(2) {
			w.ids++
		}
		e = append(e, descriptors.Entry{Key: "id", Value: fmt.Sprint(w.ids - w.rng.IntN(3))})
	}
	return e
}

// call has a process decide a request.
func (w *world) call(p *process, rules []rule, ask *service.Request) {
	e, err := p.service.Evaluate(context.Background(), ask)
	if err != nil {
		w.say("%s: %v", p.name, err)
		return
	}
	w.say("%s: over %v, its turn comes in %v", p.name, e.Over, e.Delay)
	w.verdict(rules, ask, e)
}

// verdict checks the answer to a request against the modes of its rules: a rule in
// shadow mode never denies, rules in quota mode deny together, any other rule denies
// alone. A request waits only for a turn that its rules allow.
func (w *world) verdict(rules []rule, ask *service.Request, e *service.Outcome) {
	denied, quotas, full := false, 0, 0
	var longest time.Duration
	for i, s := range e.Statuses {
		r := &rules[ask.Descriptors[i].Entries[0].Key[1]-'0']
		switch {
		case s.Override:
			denied = denied || s.Denied
			longest = max(longest, r.spec.MaxDelay)
			continue
		case r.quota:
			quotas++
			if s.Denied {
				full++
			}
		case r.shadow && s.Denied:
			w.fail("%s is in shadow mode and denies", r)
		default:
			denied = denied || s.Denied
		}
		longest = max(longest, r.spec.MaxDelay)
	}
	if want := denied || quotas > 0 && full == quotas; e.Over != want {
		w.fail("over is %v, want %v: a single rule denies: %v, and %d of %d quotas", e.Over, want, denied, full, quotas)
	}
	if e.Delay < 0 || e.Delay > longest {
		w.fail("a turn comes in %v, and no rule has a max_delay above %v", e.Delay, longest)
	}
}

// TestSeeds runs many seeds.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		w := simulate(*oneSeed, true)
		t.Log("\n" + w.trace.String())
		if len(w.failed) > 0 {
			t.Errorf("seed %d: %s", *oneSeed, strings.Join(w.failed, "\n"))
		}
		return
	}
	first, start, ran := testenv.Random(t).Uint64(), time.Now(), 0
	for ; ran < *seeds && *last == 0 || *last > 0 && time.Since(start) < *last; ran++ {
		seed := first + uint64(ran)
		stuck := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("seed %d does not end", seed)) })
		if w := simulate(seed, false); len(w.failed) > 0 {
			w = simulate(seed, true)
			t.Fatalf("seed %d: %s\nIts trace: make simulate SEED=%d", seed, strings.Join(w.failed, "\n"), seed)
		}
		stuck.Stop()
	}
	t.Logf("%d seeds, %.0f a minute", ran, float64(ran)/time.Since(start).Minutes())
}

// TestSeedsGiveTheSameRun: the trace of a seed is always the same.
func TestSeedsGiveTheSameRun(t *testing.T) {
	random := testenv.Random(t)
	for range 10 {
		seed := random.Uint64()
		if a, b := simulate(seed, true).trace.String(), simulate(seed, true).trace.String(); a != b {
			i := 0
			for i < min(len(a), len(b)) && a[i] == b[i] {
				i++
			}
			t.Fatalf("seed %d: two runs differ:\n%s\n---\n%s", seed, a[max(0, i-300):min(len(a), i+200)], b[max(0, i-300):min(len(b), i+200)])
		}
	}
}
