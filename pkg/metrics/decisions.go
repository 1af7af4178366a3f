package metrics

import (
	"log/slog"
	"math"
	"strings"
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
	paths *paths
	ratio float32
	log   *slog.Logger

	took       [Ends]*latency.Histogram       // of requests
	results    [service.Results]atomic.Uint64 // that are errors
	policies   [descriptors.Policies]atomic.Uint64
	beyondCaps atomic.Uint64
	nextLine   atomic.Int64 // Unix time before which no other request beyond the caps is logged
	retryAfter *prometheus.HistogramVec
	retry      []prometheus.Observer // by algorithms.Strategy

	// found maps placeOf to *counted, so that a decision takes no lock. Each set of rules gets a
	// new map, because the old one refers to the old rules.
	found atomic.Pointer[sync.Map]
}

func newDecisions(p *paths, nearLimitRatio float64, clock func() time.Time, log *slog.Logger) *decisions {
	d := &decisions{
		counts: counts{clock: clock, rules: map[RuleName]*RuleCounts{}, limits: map[limitLabels]*limitCounts{}},
		paths:  p, ratio: float32(nearLimitRatio), log: log,
		retryAfter: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rls_retry_after_seconds", Buckets: []float64{0.1, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600},
			Help: "Time that denied callers have to wait, by the strategy of the limit that denied them.",
		}, []string{"strategy"}),
	}
	d.found.Store(new(sync.Map))
	for end := range d.took {
		d.took[end] = latency.NewHistogram(scale)
	}
	for _, strategy := range algorithms.Names() {
		d.retry = append(d.retry, d.retryAfter.WithLabelValues(strategy))
	}
	return d
}

// Observe counts a request and the decision of each of its limits.
func (d *decisions) Observe(o *service.Observation) {
	d.took[min(o.Result, EndFailed)].Observe(o.Took)
	if o.Result > service.Limited {
		d.results[o.Result].Add(1)
	}
	switch {
	case o.Result == service.Invalid || o.Result == service.NoRules:
		d.paths.serviceError.n.Add(1)
	case o.Result == service.NoStore || o.Partial:
		d.paths.redisError.n.Add(1)
	}
	if o.Spared {
		d.paths.globalShadow.n.Add(1)
	}
	if o.Unknown {
		d.paths.notFound(o.Domain).n.Add(uint64(o.Descriptors))
	}
	if o.Beyond != "" {
		d.beyond(o)
	}
	d.account(o)
	end := EndPassed // of the descriptor
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		c := d.verdict(o, v)
		if v.Pool != nil && !v.Shadow { // else the pool was only looked at
			lent := EndPassed
			if !v.Pool.Is.Allowed {
				lent = EndDenied
			}
			d.verdict(o, v.Pool).rule.ended[lent].Add(1)
		}
		switch {
		case v.Decided:
			for j := range c.reached {
				if v.Reached == &v.Limit.Thresholds[j] {
					c.reached[j].Add(1)
				}
			}
			if !v.Is.Allowed && !v.Watched {
				end = EndDenied
			}
		default:
			if o.Result != service.CallGone {
				d.policies[descriptors.PolicyError].Add(1)
			}
			if end == EndPassed && !v.Watched {
				end = EndFailed
			}
		}
		if i+1 == len(o.Verdicts) || !v.SameDescriptor(&o.Verdicts[i+1]) {
			if c.rule != nil {
				c.rule.ended[end].Add(1)
			}
			end = EndPassed
		}
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
		key = d.called(c.of, o.Domain, v)
	}
	near := c.near
	if v.Override || v.Limit.As != nil { // c is for limits of other amounts, too
		near = d.near(v)
	}
	key.count(v, near)
	if v.Decided {
		d.count(c, v, near, o.ShadowMode)
	}
	return c
}

// count counts a decision once, with any number of hits, in the series rls_*.
func (d *decisions) count(c *counted, v *service.Verdict, near uint64, shadowMode bool) {
	decisions := &c.limit.decisions[0]
	if !v.Counted {
		decisions = &c.limit.decisions[1+v.Policy()]
		d.policies[v.Policy()].Add(1)
	}
	decisions[decisionOf(v, shadowMode)].Add(1)
	if v.Watched {
		return // the metrics below do not say which limit they are of
	}
	if !v.Is.Allowed {
		d.retry[v.Limit.Strategy].Observe(v.Is.RetryAfter.Seconds())
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
	key      *keyed           // nil when the metric key depends on the request
	near     uint64           // hits above which the limit is near
	reached  []*atomic.Uint64 // for each threshold of the limit
}

// find finds or makes the counters for the verdicts of a limit. Callers make overrides up,
// so these are counted by domain.
func (d *decisions) find(domain string, v *service.Verdict) *counted {
	found, place := d.found.Load(), placeOf(v)
	if place != nil {
		if c, ok := found.Load(place); ok && c.(*counted).by == v.Limit.Strategy {
			return c.(*counted)
		}
	}
	c := &counted{by: v.Limit.Strategy, near: d.near(v)}
	d.mu.Lock()
	if v.Rule != nil {
		c.rule = d.rule(RuleName{domain, v.Rule.Path})
	}
	c.of = d.rule(RuleName{domain, v.Path(domain)})
	c.limit, c.strategy = d.limit(c.of, v.Limit, titleOf(limitOfRule(v)))
	c.reached = c.of.thresholds(v.Limit)
	d.mu.Unlock()
	if !v.Override && v.Rule.FixedMetricKey() {
		c.key = d.paths.rule(&c.of.lifetime, v.Rule.Path)
	}
	if place != nil {
		found.Store(place, c)
	}
	return c
}

// overridden is the limit of a rule in whose place requests bring limits, and tabled one in
// whose place rows of a table have amounts. They are types of their own to be keys of
// decisions.found beside the limit itself.
type (
	overridden descriptors.Limit
	tabled     descriptors.Limit
)

// placeOf is the key for the verdicts of a limit of a rule, or of limits in its place, of which v
// is one; nil if no rule has one.
func placeOf(v *service.Verdict) any {
	if !v.Override && v.Limit.As == nil {
		return v.Limit
	}
	switch l := limitOfRule(v); {
	case l == nil:
		return nil
	case v.Override:
		return (*overridden)(l)
	default:
		return (*tabled)(l)
	}
}

// near is the number of hits above which a limit is near, in single precision as in
// envoyproxy/ratelimit. Single precision can round a capacity above 2^24 up, so the capacity
// bounds the result.
func (d *decisions) near(v *service.Verdict) uint64 {
	capacity := uint64(v.Limit.Capacity())
	return min(capacity, uint64(math.Floor(float64(float32(capacity)*d.ratio))))
}

// called finds or makes the counters of a metric key that depends on the request.
func (d *decisions) called(of *RuleCounts, domain string, v *service.Verdict) *keyed {
	domain = descriptors.Printable(domain)
	if !v.Override {
		return d.paths.called(&of.lifetime, domain, v.Rule.MetricKey(domain, v.Entries))
	}
	var b strings.Builder
	b.WriteString(domain)
	for _, e := range v.Entries {
		b.WriteByte('.')
		b.WriteString(descriptors.Printable(e.Key))
		if e.Value != "" {
			b.WriteByte('_')
			b.WriteString(descriptors.Printable(e.Value))
		}
	}
	return d.paths.called(&of.lifetime, domain, b.String())
}

// count counts the hits of a verdict as envoyproxy/ratelimit does: when one
// request crosses a threshold, its hits below and above are counted apart. Hits that
// the store did not count are in the total only. Of a limit that is watched only the hits
// beyond it are counted, as hits in shadow mode.
func (k *keyed) count(v *service.Verdict, near uint64) {
	if v.Watched {
		if v.Counted && !v.Is.Allowed {
			k.stats[shadowMode].n.Add(v.Hits)
		}
		return
	}
	k.stats[totalHits].n.Add(v.Hits)
	if !v.Counted {
		return
	}
	after := uint64(max(v.After, 0))
	before := after - min(after, v.Hits)
	if v.Is.Allowed {
		k.stats[withinLimit].n.Add(v.Hits)
		if after > near {
			k.stats[nearLimit].n.Add(min(v.Hits, after-near))
		}
		return
	}
	over := v.Hits
	if v.Recalled { // the store was not asked, so nothing was charged
		k.stats[overLimitLocal].n.Add(over)
	} else if limit := uint64(v.Limit.Capacity()); v.All && before < limit {
		over = after - limit
		k.stats[nearLimit].n.Add(limit - max(near, before))
	}
	k.stats[overLimit].n.Add(over)
	if v.Shadow {
		k.stats[shadowMode].n.Add(over)
	}
}
