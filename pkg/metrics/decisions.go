package metrics

import (
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.org/rls/internal/latency"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// decisions counts the decisions of limits. It is a [service.Observer].
type decisions struct {
	counts
	reference *reference
	ratio     float32
	log       *slog.Logger

	took       [Ends]*latency.Histogram       // of requests
	results    [service.Results]atomic.Uint64 // that are errors
	policies   [descriptors.Policies]atomic.Uint64
	beyondCaps atomic.Uint64
	nextLine   atomic.Int64          // Unix time before which no other request beyond the caps is logged
	retryAfter []prometheus.Observer // by algorithms.Strategy

	// found maps limits of rules to their *found, so that a decision takes no lock. Each set of
	// rules gets a new map, because the old one refers to the old rules.
	found atomic.Pointer[sync.Map]
}

func newDecisions(r *reference, nearLimitRatio float64, clock func() time.Time, log *slog.Logger) *decisions {
	d := &decisions{
		counts:    counts{clock: clock, rules: map[RuleName]*RuleCounts{}, limits: map[limitLabels]*limitCounts{}},
		reference: r, ratio: float32(nearLimitRatio), log: log,
	}
	d.found.Store(new(sync.Map))
	for end := range d.took {
		d.took[end] = latency.NewHistogram(scale)
	}
	return d
}

// Observe counts a request and the decision of each of its limits.
func (d *decisions) Observe(o *service.Observation) {
	d.took[min(o.Result, EndFailed)].Observe(o.Took)
	if o.Result > service.Limited {
		d.results[o.Result].Add(1)
	}
	d.reference.request(o)
	if o.Beyond != "" {
		d.beyond(o)
	}
	d.account(o)
	for verdicts := range o.ByDescriptor() {
		d.descriptor(o, verdicts)
	}
}

// descriptor counts the verdicts of a descriptor, and how it ended: a limit that denies goes
// before one that is not decided.
func (d *decisions) descriptor(o *service.Observation, verdicts []service.Verdict) {
	end := EndPassed
	var rule *RuleCounts
	for i := range verdicts {
		v := &verdicts[i]
		c := d.verdict(o, v)
		rule = c.rule
		if v.Pool != nil && !v.Shadow { // else the pool was only looked at
			lent := EndPassed
			if !v.Pool.Is.Allowed {
				lent = EndDenied
			}
			d.verdict(o, v.Pool).rule.ended[lent].Add(1)
		}
		for j := range c.reached {
			if v.Decided && v.Reached == &v.Limit.Thresholds[j] {
				c.reached[j].Add(1)
			}
		}
		if !v.Decided && o.Result != service.CallGone {
			d.policies[descriptors.PolicyError].Add(1)
		}
		switch {
		case v.Watched:
		case v.Decided && !v.Is.Allowed:
			end = EndDenied
		case !v.Decided && end == EndPassed:
			end = EndFailed
		}
	}
	if rule != nil {
		rule.ended[end].Add(1)
	}
}

// beyond counts a request beyond the caps, and logs one a minute.
func (d *decisions) beyond(o *service.Observation) {
	n := d.beyondCaps.Add(1)
	now, next := d.clock().Unix(), d.nextLine.Load()
	if now >= next && d.nextLine.CompareAndSwap(next, now+60) {
		d.log.Warn("a request beyond the caps was not decided", "domain", descriptors.Printable(o.Domain), "reason", o.Beyond, "answer", results[o.Result], "requests", n)
	}
}

// account counts the hits of reservations and overdrafts.
func (d *decisions) account(o *service.Observation) {
	for _, v := range o.Accounts {
		n, a := &d.find(o.Domain, v).of.accounts, v.Account
		if a.Reservation == "held" {
			n.reserved.Add(uint64(a.Charged))
		} else {
			n.charged.Add(uint64(a.Charged))
		}
		n.givenBack.Add(uint64(a.GivenBack))
		n.uncharged.Add(uint64(a.Uncharged))
		n.cut.Add(uint64(a.Cut))
	}
}

// verdict counts a verdict of o, and returns the counters of its limit.
func (d *decisions) verdict(o *service.Observation, v *service.Verdict) *counted {
	c := d.find(o.Domain, v)
	key := c.key
	if key == nil {
		key = d.reference.callersKey(c.of, o.Domain, v)
	}
	near := c.near
	if v.Override || v.Limit.As != nil { // c is for limits of other amounts, too
		near = d.near(v)
	}
	key.count(v, near)
	if v.Decided {
		d.count(c, v, near, decisionOf(o, v))
	}
	return c
}

// count counts a decision once, with any number of hits, in the series rls_*.
func (d *decisions) count(c *counted, v *service.Verdict, near uint64, decision int) {
	decisions := &c.limit.decisions[0]
	if !v.Counted {
		decisions = &c.limit.decisions[1+v.Policy()]
		d.policies[v.Policy()].Add(1)
	}
	decisions[decision].Add(1)
	if v.Watched {
		return // the metrics below do not say which limit they are of
	}
	if !v.Is.Allowed {
		d.retryAfter[v.Limit.Strategy].Observe(v.Is.RetryAfter.Seconds())
		return
	}
	if !v.Counted {
		return // the policy does not know how full the limit is
	}
	if v.After > 0 && uint64(v.After) > near {
		c.strategy.near.Add(1)
	}
	if v.Limit.Burst > 0 && v.Is.Remaining == 0 && v.Hits > 0 {
		c.strategy.exhausted.Add(1)
	}
}

// counted has the counters for the verdicts of one limit.
type counted struct {
	by       algorithms.Strategy // of the limit that decided
	rule     *RuleCounts         // of the matching rule; nil without one
	of       *RuleCounts         // of the rule, or for overrides of the domain's overrides
	strategy *strategyCounts
	limit    *limitCounts
	key      *metricKey       // nil when the metric key depends on the request
	near     uint64           // hits above which the limit is near
	reached  []*atomic.Uint64 // for each threshold of the limit
}

// found has the counters for a limit of a rule, for the limits that requests bring in its place,
// and for the limits whose amounts are in the rows of a table.
type found [3]atomic.Pointer[counted]

// place is where the counters for v are found, and made if they are not there; nil if no rule has
// the limit.
func (d *decisions) place(v *service.Verdict) *atomic.Pointer[counted] {
	l, as := v.Limit, 0
	switch {
	case v.Override:
		l, as = limitOfRule(v), 1
	case l.As != nil:
		l, as = l.As, 2
	}
	if l == nil {
		return nil
	}
	all := d.found.Load()
	places, known := all.Load(l)
	if !known {
		places, _ = all.LoadOrStore(l, new(found))
	}
	return &places.(*found)[as]
}

// find finds or makes the counters for the verdicts of a limit. Callers make overrides up,
// so these are counted by domain.
func (d *decisions) find(domain string, v *service.Verdict) *counted {
	place := d.place(v)
	if place != nil {
		if c := place.Load(); c != nil && c.by == v.Limit.Strategy {
			return c
		}
	}
	c := &counted{by: v.Limit.Strategy, near: d.near(v)}
	d.mu.Lock()
	if v.Rule != nil {
		c.rule = d.rule(RuleName{domain, v.Rule.Path, v.Rule.RowPlan})
	}
	c.of = d.rule(RuleName{domain, v.Path(domain), ""})
	c.limit, c.strategy = d.limit(c.of, v.Limit, titleOf(v), v.Plan())
	c.reached = c.of.thresholds(v.Limit)
	d.mu.Unlock()
	if !v.Override && v.Rule.FixedMetricKey {
		c.key = d.reference.ownKey(c.of, v.Rule.Path)
	}
	if place != nil {
		place.Store(c)
	}
	return c
}

// near is the number of hits above which a limit is near, in single precision as in
// envoyproxy/ratelimit. Single precision can round a capacity above 2^24 up, so the capacity
// bounds the result.
func (d *decisions) near(v *service.Verdict) uint64 {
	capacity := uint64(v.Limit.Capacity())
	return min(capacity, uint64(math.Floor(float64(float32(capacity)*d.ratio))))
}

// decisionOf is the decision of v, a verdict of o that is decided.
func decisionOf(o *service.Observation, v *service.Verdict) int {
	switch {
	case v.Is.Allowed:
		return allowed
	case v.Shadow || o.ShadowMode:
		return shadowed
	}
	return denied
}

// limitOfRule is the limit of the rule by which a verdict was made, also if a request or a row
// brought another one in its place. It is nil if the rule has none, or no rule matched.
func limitOfRule(v *service.Verdict) *descriptors.Limit {
	l := v.Limit
	if v.Override {
		if v.Rule == nil {
			return nil
		}
		l = v.Rule.Main()
	}
	if l != nil && l.As != nil {
		return l.As
	}
	return l
}

// titleOf is the title of limitOfRule: callers make the amounts of overrides up.
func titleOf(v *service.Verdict) string {
	if l := limitOfRule(v); l != nil {
		return l.Title()
	}
	return ownTitle
}
