package metrics

import (
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

// The possible decisions of a limit.
const (
	allowed  = iota
	denied   // and the rule is enforced
	shadowed // denied, by a rule in shadow mode or in a process in shadow mode
	decisionCount
)

var decisionNames = [decisionCount]string{"allowed", "denied", "shadow"}

// decisionOf is the decision of a verdict that is decided; shadowMode is that of the process.
func decisionOf(v *service.Verdict, shadowMode bool) int {
	switch {
	case v.Is.Allowed:
		return allowed
	case v.Shadow || shadowMode:
		return shadowed
	}
	return denied
}

// The ways in which requests end, and descriptors of requests.
const (
	EndPassed = iota
	EndDenied
	EndFailed // refused or not decided
	Ends
)

// RuleName has the labels of a rule.
type RuleName struct{ Domain, Path string }

// RuleCounts has the counts of a rule, or of the limits that requests to a domain bring.
type RuleCounts struct {
	RuleName
	ended      [Ends]atomic.Uint64
	accounts   accountCounts
	strategies []*strategyCounts // by algorithms.Strategy, nil for those without limits; decisions.mu guards it
	presence
	// reached counts the thresholds of the limits. decisions.mu guards the map.
	reached map[algorithms.Percent]*atomic.Uint64
}

// Ended is the number of descriptors that the limits of the rule have decided, by how they
// ended: if one limit denies, the descriptor is denied.
func (r *RuleCounts) Ended() (n [Ends]uint64) {
	for end := range r.ended {
		n[end] = r.ended[end].Load()
	}
	return n
}

// strategyCounts has the counts of a rule's limits of one strategy.
type strategyCounts struct {
	near      atomic.Uint64
	exhausted atomic.Uint64
	burst     bool // the limits have a burst
}

// limitLabels are the labels of a limit. Limits of one rule that have the same are counted as one.
type limitLabels struct {
	of       *RuleCounts
	strategy algorithms.Strategy
	title    string
}

// limitCounts has the counts of the decisions of one limit. decisions.mu guards all but the
// counts.
type limitCounts struct {
	// decisions counts the store's decisions at 0, and the decisions of policy p at 1+p.
	decisions [1 + descriptors.Policies][decisionCount]atomic.Uint64
	presence
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

// decisions counts the decisions of limits. It is a [service.Observer].
type decisions struct {
	paths *paths
	ratio float32
	clock func() time.Time

	took       [Ends]*latency.Histogram       // of requests
	results    [service.Results]atomic.Uint64 // that are errors
	policies   [descriptors.Policies]atomic.Uint64
	retryAfter *prometheus.HistogramVec
	retry      []prometheus.Observer // by algorithms.Strategy

	// found maps *descriptors.Limit to *counted, so that a decision takes no
	// lock, and inPlaceOf to the *counted of the limits in its place. Each set of rules gets
	// a new map, because the old one refers to the old rules.
	found atomic.Pointer[sync.Map]

	mu     sync.Mutex
	rules  map[RuleName]*RuleCounts
	limits map[limitLabels]*limitCounts
}

func newDecisions(p *paths, nearLimitRatio float64, clock func() time.Time) *decisions {
	d := &decisions{
		paths: p, ratio: float32(nearLimitRatio), clock: clock, rules: map[RuleName]*RuleCounts{}, limits: map[limitLabels]*limitCounts{},
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
		decisions = &c.limit.decisions[1+v.Limit.OnError]
		d.policies[v.Limit.OnError].Add(1)
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

// find finds or makes the counters for the verdicts of a limit. Callers make overrides up,
// so these are counted by domain.
func (d *decisions) find(domain string, v *service.Verdict) *counted {
	found, l := d.found.Load(), limitOfRule(v)
	own := !v.Override && v.Limit.As == nil
	if own {
		if c, ok := found.Load(v.Limit); ok {
			return c.(*counted)
		}
	} else if l != nil {
		if kept, ok := found.Load(inPlaceOf(l, v)); ok && kept.(*counted).by == v.Limit.Strategy {
			return kept.(*counted)
		}
	}
	c := &counted{by: v.Limit.Strategy, near: d.near(v)}
	title := titleOf(l)
	d.mu.Lock()
	if v.Rule != nil {
		c.rule = d.rule(RuleName{domain, v.Rule.Path})
	}
	c.of = d.rule(RuleName{domain, ruleOf(domain, v)})
	strategy := &c.of.strategies[v.Limit.Strategy]
	if *strategy == nil {
		*strategy = &strategyCounts{burst: v.Limit.Burst > 0}
	}
	c.strategy = *strategy
	for i := range v.Limit.Thresholds {
		at := v.Limit.Thresholds[i].At
		if c.of.reached[at] == nil {
			c.of.reached[at] = new(atomic.Uint64)
		}
		c.reached = append(c.reached, c.of.reached[at])
	}
	if c.limit = d.limits[limitLabels{c.of, v.Limit.Strategy, title}]; c.limit == nil {
		c.limit = &limitCounts{}
		d.limits[limitLabels{c.of, v.Limit.Strategy, strings.Clone(title)}] = c.limit
	}
	d.mu.Unlock()
	if !v.Override && v.Rule.FixedMetricKey() {
		c.key = d.paths.rule(c.of, v.Rule.Path)
	}
	switch {
	case own:
		found.Store(v.Limit, c)
	case l != nil:
		found.Store(inPlaceOf(l, v), c)
	}
	return c
}

// rule finds or makes the counts of a rule. The caller holds d.mu.
func (d *decisions) rule(name RuleName) *RuleCounts {
	r := d.rules[name]
	if r == nil {
		name = RuleName{strings.Clone(name.Domain), strings.Clone(name.Path)}
		r = &RuleCounts{RuleName: name, strategies: make([]*strategyCounts, len(d.retry)), reached: map[algorithms.Percent]*atomic.Uint64{}}
		d.rules[name] = r
	}
	return r
}

// ruleOf is the path of the rule whose limit decided.
func ruleOf(domain string, v *service.Verdict) string {
	if v.Override {
		return service.OverridePath(domain)
	}
	return v.Rule.Path
}

// ownTitle stands in place of a title for limits that requests bring where no rule has one.
const ownTitle = "override"

// overridden is the limit of a rule in whose place requests bring limits, and tabled one in
// whose place rows of a table have amounts. They are types of their own to be keys of
// decisions.found beside the limit itself.
type (
	overridden descriptors.Limit
	tabled     descriptors.Limit
)

// inPlaceOf is the key for the verdicts of limits in l's place, of which v is one.
func inPlaceOf(l *descriptors.Limit, v *service.Verdict) any {
	if v.Override {
		return (*overridden)(l)
	}
	return (*tabled)(l)
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

// titleOf is the title of limitOfRule's result: callers make the amounts of overrides up.
func titleOf(l *descriptors.Limit) string {
	if l == nil {
		return ownTitle
	}
	return l.Title()
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
	if !v.Override {
		return d.paths.called(of, domain, v.Rule.MetricKey(domain, v.Entries))
	}
	var b strings.Builder
	b.WriteString(domain)
	for _, e := range v.Entries {
		b.WriteByte('.')
		b.WriteString(e.Key)
		if e.Value != "" {
			b.WriteByte('_')
			b.WriteString(e.Value)
		}
	}
	return d.paths.called(of, domain, b.String())
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

// countLimits adds the metrics of limits.
func (m *Metrics) countLimits() {
	byStrategy := func(read func(*strategyCounts, tell)) func(tell) {
		return func(is tell) {
			m.Counted(func(r *RuleCounts) {
				for strategy, s := range r.strategies {
					if s != nil {
						read(s, func(n float64, _ ...string) { is(n, r.Domain, r.Path, algorithms.Strategy(strategy).String()) })
					}
				}
			})
		}
	}
	m.table = append(m.table, m.decisions.retryAfter.Collect)
	m.counter("rls_decisions_total", "Decisions about a descriptor by one limit: allowed, denied, or shadow where shadow mode let it pass all the same. The policy is counted if the store decided, else the failure policy that did.",
		m.decisions.tell, "domain", "rule", "strategy", "limit", "decision", "policy")
	m.counter("rls_near_limit_total", "Allowed decisions after which a limit was beyond NEAR_LIMIT_RATIO.", byStrategy(func(s *strategyCounts, is tell) {
		is(float64(s.near.Load()))
	}), "domain", "rule", "strategy")
	m.counter("rls_threshold_reached_total", "Requests that passed while a threshold of a limit applied to them: the highest that was reached.", func(is tell) {
		m.Counted(func(r *RuleCounts) {
			for at, n := range r.reached {
				is(float64(n.Load()), r.Path, at.String())
			}
		})
	}, "rule", "at")
	m.counter("rls_burst_exhausted_total", "Allowed decisions that took the last of a burst.", byStrategy(func(s *strategyCounts, is tell) {
		if s.burst {
			is(float64(s.exhausted.Load()))
		}
	}), "domain", "rule", "strategy")
}

// tell tells the decisions of each limit.
func (d *decisions) tell(is tell) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for labels, l := range d.limits {
		by := service.Counted
		for p := range l.decisions {
			if p > 0 {
				by = descriptors.Policy(p - 1).String()
			}
			for decision := range l.decisions[p] {
				// Few rules have shadow mode or need their policy: these series start with
				// their first decision.
				if n := l.decisions[p][decision].Load(); n > 0 || p == 0 && decision != shadowed {
					is(float64(n), labels.of.Domain, labels.of.Path, labels.strategy.String(), labels.title, decisionNames[decision], by)
				}
			}
		}
	}
}

// Took returns the durations of all requests, and the number of requests by how they ended.
func (m *Metrics) Took() (took latency.Counts, ended [Ends]uint64) {
	all := &m.decisions.took
	for end, h := range all {
		ended[end] = latency.Read(h).Total()
	}
	return latency.Read(all[:]...), ended
}

// Failed returns the number of requests that ended with an error, by service.Result.
func (m *Metrics) Failed() (n [service.Results]uint64) {
	for result := range n {
		n[result] = m.decisions.results[result].Load()
	}
	return n
}

// ByPolicy returns the number of decisions of limits that failure policies made in place of
// the store, by descriptors.Policy. With the policy error these are the limits left undecided.
func (m *Metrics) ByPolicy() (n [descriptors.Policies]uint64) {
	for p := range n {
		n[p] = m.decisions.policies[p].Load()
	}
	return n
}

// Counted calls do for each rule that has counts. New rules wait meanwhile.
func (m *Metrics) Counted(do func(*RuleCounts)) {
	m.decisions.mu.Lock()
	defer m.decisions.mu.Unlock()
	for _, r := range m.decisions.rules {
		do(r)
	}
}

// Observer returns the observer that counts decisions.
func (m *Metrics) Observer() service.Observer { return m.decisions }
