package simulation_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// An oracle notes what callers were told, and checks it against the promises of
// docs/strategies.md, docs/store-away.md and ADR 2, not against the code.
type oracle struct {
	*world
	rules   []rule
	options *options
	server  *server
	subject map[string]*subject
	windows map[string]*counted
	debts   map[string]*debt
}

// subject is one value of one rule.
type subject struct {
	name    string
	rule    *rule
	max     int64 // the highest limit that was asked for, with overrides
	hits    []hit
	refunds []hit
	resets  []hit // by the server's clock
	grants  []hit // by the server's clock
}

type hit struct {
	at   int64 // the time at which it was decided, by the process's clock
	cost int64
	era  int
}

// counted is the highest value of a fixed window that a caller was told.
type counted struct {
	era  int
	told []hit // at: when, in true time; cost: the value
	// falls: a refund, a reset or a grant may lower the value.
	falls bool
}

// debt is hits of a fixed window that were admitted without the store, since its last fault.
type debt struct {
	op    backends.Op
	hits  int64
	fault int  // server.faults then
	falls bool // a refund or a reset may lower the hits in the store
}

func newOracle(w *world, rules []rule, o *options, s *server) *oracle {
	or := &oracle{world: w, rules: rules, options: o, server: s,
		subject: map[string]*subject{}, windows: map[string]*counted{}, debts: map[string]*debt{}}
	s.check, s.ends = or.applied, or.afterFault
	return or
}

// of finds the subject of a key: sim|r1=alice|... with braces somewhere. The second
// limit of a rule has a subject of its own, and so has the bucket of an override, whose
// key ends with :requests:burst.
func (o *oracle) of(key string) *subject {
	_, rest, _ := strings.Cut(key, "|r")
	end := strings.IndexAny(rest, "|}")
	name := rest[:end]
	r := &o.rules[name[0]-'0']
	if r.also != nil && strings.HasPrefix(rest[end:], fmt.Sprintf("}|%v|", alsoWindow)) {
		name, r = name+", also", r.also
	}
	if _, terms, _ := strings.Cut(rest, ":"); r.meter() && r.spec.Overdraft == 0 {
		own := *r
		if _, err := fmt.Sscan(strings.Replace(terms, ":", " ", 1), &own.spec.Requests); err != nil {
			panic(fmt.Sprintf("%s: %v", key, err))
		}
		if own.spec.Requests != r.spec.Requests {
			name, r = fmt.Sprintf("%s, %d", name, own.spec.Requests), &own
		}
	}
	s := o.subject[name]
	if s == nil {
		s = &subject{name: "r" + name, rule: r, max: r.capacity()}
		o.subject[name] = s
	}
	return s
}

// costOf is the hits of an operation.
func costOf(op *backends.Op, r *rule) int64 { return hitsOf(op, r, op.By) }

// hitsOf is how many hits an amount of an operation is, rounded down.
func hitsOf(op *backends.Op, r *rule, amount backends.Amount) int64 {
	if op.Kind == backends.Meter {
		return (amount.Whole*op.Den + amount.Frac) / r.window()
	}
	return amount.Whole
}

// skew bounds the time by which operations that reach the server are out of order.
func (o *oracle) skew() int64 {
	return 2*o.options.skew.Microseconds() + 2*o.options.network.max.Microseconds()
}

// asks notes that a cell may be lowered, before anybody can see it.
func (o *oracle) asks(op *backends.Op) {
	s := o.of(op.Key)
	cost := costOf(op, s.rule)
	refund := op.Verb.GivesBack() && cost > 0
	if refund && !op.Identified() { // what a settlement gives back is told
		s.refunds = append(s.refunds, hit{op.Now, cost, o.server.era})
	}
	if refund || op.Identified() || op.Verb.Operates() {
		o.window(op.Key).falls = true
		o.debt(op).falls = true
	}
}

// applied notes that the server has applied op at its time, and checks the life of
// the key.
func (o *oracle) applied(op *backends.Op, at, life int64) {
	s := o.of(op.Key)
	switch op.Verb {
	case backends.Reset:
		s.resets = append(s.resets, hit{at, 0, o.server.era})
	case backends.Grant:
		era := o.server.era
		if op.Now > at+o.skew() { // the process has not heard that the server's clock was set back
			era--
		}
		s.grants = append(s.grants, hit{at, costOf(op, s.rule), era})
	}
	o.expiry(s, life, max(0, at-op.Now))
}

// told notes the answer to operation i of b, which was asked for at a time.
func (o *oracle) told(p *process, b *backends.Batch, i int, asked int64, era, faults int) {
	op, r := &b.Ops[i], &b.Replies[i]
	s := o.of(op.Key)
	cost := costOf(op, s.rule)
	if s.rule.clocked() {
		s.max = max(s.max, op.Max.Whole)
	}
	o.say("%s: %s %s: %s", p.name, s.name, describe(op, cost), told(op, r))
	if r.Err != nil {
		if op.Identified() { // it may have been settled
			s.refunds = append(s.refunds, hit{op.Now, maxCost, era})
		}
		if o.options.network.loses == 0 && o.server.state == up && faults == o.server.faults && asked > o.server.back+1_000_000 {
			o.fail("%s: %s is not decided more than a second after the server was back: %v", p.name, s.name, r.Err)
		}
		return
	}
	if r.Replicas > 0 {
		o.local(p, b, i)
		return
	}
	o.remains(p, s, op, r)
	if op.Verb.Operates() {
		return
	}
	exempt := era != o.server.era || asked < o.server.quiet
	switch r.HoldState() {
	case backends.Settled:
		// The difference, of which nothing may exceed a limit without an overdraft.
		charged := op.By.Sub(r.Account.Held, op.Den).Sub(r.Account.Cut, op.Den)
		if op.Verb.GivesBack() {
			charged = backends.Amount{}.Sub(r.Account.Held, op.Den)
		}
		if charged.Whole < 0 {
			s.refunds = append(s.refunds, hit{r.Now, hitsOf(op, s.rule, backends.Amount{}.Sub(charged, op.Den)), era})
		}
		if cost = hitsOf(op, s.rule, charged); s.rule.spec.Overdraft > 0 {
			cost = 0
		}
	case backends.Unchanged:
		cost = 0
	}
	if r.Admitted == op.Times && b.Charged(i) && !op.Verb.GivesBack() && cost > 0 && !exempt {
		s.hits = append(s.hits, hit{r.Now, cost, era})
	}
	if s.rule.clocked() && s.rule.spec.Overdraft == 0 && !s.rule.lease && !s.rule.local && !r.Recalled && !exempt {
		o.rises(p, s, op, r, asked, era)
	}
}

// remains checks that no more is left than the limit and all grants so far.
func (o *oracle) remains(p *process, s *subject, op *backends.Op, r *backends.Reply) {
	floor := int64(0)
	if op.Kind == backends.Meter {
		floor = r.Now
	}
	credit := int64(0)
	for _, g := range s.grants {
		credit += g.cost
	}
	if op.Kind == backends.Meter {
		credit = (credit*s.rule.window() + op.Den - 1) / op.Den
	}
	if r.Value.Whole < floor-credit {
		o.fail("%s: %s has more left than its limit and its grants: value %d", p.name, s.name, r.Value.Whole-floor)
	}
}

// rises checks that the value of a fixed window does not fall, unless a refund, a
// reset or a grant may have lowered it.
func (o *oracle) rises(p *process, s *subject, op *backends.Op, r *backends.Reply, asked int64, era int) {
	w := o.window(op.Key)
	if w.era != era {
		*w = counted{era: era, falls: w.falls}
	}
	if w.falls {
		return
	}
	for _, before := range w.told {
		if before.at < asked && before.cost > r.Value.Whole {
			o.fail("%s: remaining of %s rises within its window: %d hits in use, %d were before", p.name, s.name, r.Value.Whole, before.cost)
			return
		}
	}
	w.told = append(w.told, hit{at: o.now, cost: r.Value.Whole})
}

func (o *oracle) window(key string) *counted {
	if o.windows[key] == nil {
		o.windows[key] = &counted{}
	}
	return o.windows[key]
}

func (o *oracle) debt(op *backends.Op) *debt {
	d := o.debts[op.Key]
	if d == nil {
		d = &debt{}
		o.debts[op.Key] = d
	}
	// A restart may have lost the hits that were charged. And in a new window, a counter that
	// carries its surplus over has only the hits beyond the limit of the window before.
	if d.fault != o.server.faults || d.op.Mark != op.Mark {
		d.fault, d.hits = o.server.faults, 0
	}
	d.op = *op
	return d
}

// local notes a decision that was made without the store.
func (o *oracle) local(p *process, b *backends.Batch, i int) {
	op := &b.Ops[i]
	s := o.of(op.Key)
	cost := costOf(op, s.rule)
	passed := b.Replies[i].Admitted == op.Times && b.Charged(i)
	o.say("%s: %s %s: decided here: charged %v", p.name, s.name, describe(op, cost), passed)
	owed := o.debt(op)
	switch {
	case op.Verb.GivesBack():
		owed.falls = true
		s.refunds = append(s.refunds, hit{op.Now, cost, o.server.era})
	case cost > 0 && (passed || op.Overdraws()):
		owed.hits += cost
		// Each answer that is lost is an outage of its own, without a bound together, and a clock
		// that was set ends windows and grants.
		if passed && o.options.network.loses == 0 && o.now >= o.server.quiet {
			s.hits = append(s.hits, hit{op.Now, cost, o.server.era})
		}
	}
}

// afterFault checks, two seconds after a fault, that the server has the hits that
// were admitted without it.
func (o *oracle) afterFault() {
	era, faults := o.server.era, o.server.faults
	o.after(2_000_000, func() {
		if o.options.network.loses > 0 || o.server.era != era || o.server.faults != faults || o.server.quiet > o.now {
			return
		}
		for key, d := range o.debts {
			now := o.now + o.server.clock
			counted := d.op.Span == backends.Fixed || d.op.Span == backends.Carried
			if d.hits == 0 || d.falls || d.fault != faults || d.op.Kind != backends.Counter || !counted || d.op.Span == backends.Sliding || d.op.Until <= now+o.skew() {
				continue
			}
			most := d.op.Max.Whole
			most += d.op.Debt.Whole
			if has, want := o.server.peek(d.op), min(d.hits, most); has < want {
				o.fail("%s has %d hits two seconds after the server was back; %d were admitted without it", key, has, want)
			}
		}
	})
}

// expiry checks that a key ends with its limit, or with the credit of a grant. late is how much
// later than its own time an operation came: the next window may have begun.
func (o *oracle) expiry(s *subject, life, late int64) {
	r := s.rule
	bound := r.longest()
	switch {
	case r.meter():
		bound = (r.capacity()+int64(r.spec.Overdraft))*r.window()/int64(max(1, r.spec.Requests)) + backends.Skew
		if len(s.grants) > 0 {
			bound = max(bound, r.window())
		}
	case r.spec.Strategy == algorithms.SlidingWindow:
		bound = 2 * r.window()
	case r.spec.Overdraft > 0:
		bound *= r.capacity() + int64(r.spec.Overdraft) // a window for each hit: the limit may be lowered
	}
	// A lease of a window that is in the future since the clock was set back is
	// given back at the new time.
	if bound += backends.Skew + o.skew() + o.server.stepped + late; life <= 0 || life > bound {
		o.fail("the key of %s lives for %v, want at most %v", s.name, time.Duration(life)*time.Microsecond, time.Duration(bound)*time.Microsecond)
	}
}

// conclude checks the bounds of all subjects.
func (o *oracle) conclude() {
	for _, name := range slices.Sorted(maps.Keys(o.subject)) {
		s := o.subject[name]
		slices.SortFunc(s.hits, func(a, b hit) int { return int(a.at - b.at) })
		for era := range o.server.era + 1 {
			hits := slices.DeleteFunc(slices.Clone(s.hits), func(h hit) bool { return h.era != era })
			o.bound(s, era, hits)
		}
	}
}

// bound checks that no stretch of time has more hits than the strategy allows.
func (o *oracle) bound(s *subject, era int, hits []hit) {
	r, limit := s.rule, float64(s.max)
	// A window may end earlier by twice the clocks' difference: a process that is
	// behind dates a hit earlier, and one that is ahead sees the hit's end earlier.
	early := 2 * o.skew()
	if r.lease {
		early += leaseTTL.Microseconds() + decisionTimeout
	}
	for first := range hits {
		sum := int64(0)
		for last := first; last < len(hits); last++ {
			sum += hits[last].cost
			from, to := hits[first].at, hits[last].at
			allowed := math.Inf(1)
			switch {
			case r.meter():
				allowed = limit + float64(to-from)*float64(r.spec.Requests)/float64(r.window())
			case r.clocked() || r.spec.Strategy == algorithms.SlidingWindow && r.spec.Precision == 0:
				// A clock that is ahead begins the next window of an overdraft for all.
				ahead := to
				if r.spec.Overdraft > 0 {
					ahead += o.skew()
				}
				if r.period(from) == r.period(ahead) {
					allowed = limit
				} else if to-from < r.window() {
					allowed = 2 * limit
				}
			case to-from >= r.window()-early:
			case r.spec.Extend || r.spec.Precision > 0 || r.spec.Strategy == algorithms.SlidingLog || r.spec.Strategy == algorithms.Concurrency:
				allowed = limit
			default:
				allowed = 2 * limit
			}
			if math.IsInf(allowed, 1) {
				break
			}
			allowed += o.refunded(s, from, to) + o.steered(s, limit, era, from, to)
			allowed += r.beyond()
			if r.lease && era > 0 { // hits that were held are no longer in the cell
				allowed += float64(o.options.processes) * limit / 5
			}
			if r.local {
				// A process that does not know a cell counts it as empty in each outage.
				allowed += float64(1+o.server.faults)*(limit+r.beyond()*float64(o.options.processes)) + float64(o.options.processes)
			}
			if float64(sum) > allowed+1e-6 {
				o.fail("%s (%v): %d hits passed within %v, at most %.2f may", s.name, r, sum, time.Duration(to-from)*time.Microsecond, allowed)
				return
			}
		}
	}
}

// refunded is the hits that were given back and may pass again from one time to
// another.
func (o *oracle) refunded(s *subject, from, to int64) (sum float64) {
	for _, h := range s.refunds {
		if h.at >= from-2*s.rule.window()-o.skew() && h.at <= to+o.skew() {
			sum += float64(h.cost)
		}
	}
	return sum
}

// steered is the hits that may pass from one time to another because an operator has
// reset the cell or granted hits. After a reset the limit is there once more, and a
// process may give hits back that it was leased before.
func (o *oracle) steered(s *subject, limit float64, era int, from, to int64) (sum float64) {
	since := from - 2*s.rule.window() - o.skew()
	for _, h := range s.resets {
		if h.at >= from-o.skew() && h.at <= to+o.skew() {
			sum += limit + s.rule.beyond()
			sum += o.forgotten(s)
		}
		if s.rule.lease && h.at >= since && h.at <= to+o.skew() {
			sum += float64(o.options.processes-1) * limit / 5
		}
	}
	for _, h := range slices.Backward(s.grants) {
		// A clock that was set back makes the credit live longer, and so does a later grant.
		if h.era < era || h.at >= since && h.at <= to+o.skew() {
			since = min(since, h.at-2*s.rule.window()-o.skew())
			sum += float64(h.cost+s.rule.queue()) + s.rule.beyond() + o.forgotten(s) // hits in a queue have got their turn
		}
	}
	return sum
}

// forgotten is the hits that a reset or a grant forgets of a meter: how far the clocks of
// earlier hits were ahead.
func (o *oracle) forgotten(s *subject) float64 {
	if !s.rule.meter() {
		return 0
	}
	return float64(o.skew()) * float64(s.rule.spec.Requests) / float64(s.rule.window())
}

func describe(op *backends.Op, cost int64) string {
	switch {
	case op.Verb == backends.Reset:
		return "reset"
	case op.Verb == backends.Grant:
		return fmt.Sprintf("grant %d", cost)
	case op.Verb.GivesBack():
		return fmt.Sprintf("refund %d", cost)
	case cost == 0:
		return "check"
	}
	return fmt.Sprintf("hits %d", cost)
}

func told(op *backends.Op, r *backends.Reply) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	how := ""
	if r.Recalled {
		how = ", remembered"
	}
	if r.Leased {
		how = ", leased"
	}
	value := r.Value.Whole
	if op.Kind == backends.Meter {
		value -= r.Now
	}
	if op.Identified() {
		how += fmt.Sprintf(", reservation %x: %v", op.Hold.ID[:2], [...]string{"none", "held", "settled", "unchanged"}[r.HoldState()])
	}
	return fmt.Sprintf("admitted %v, value %d%s", r.Admitted == op.Times, value, how)
}
