package metrics

import (
	"sync/atomic"

	"example.org/rls/internal/latency"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// ruleCounter adds a counter of rules, which has the labels domain and rule, and more.
func (m *Metrics) ruleCounter(name, help string, read func(*RuleCounts, tell), more ...string) {
	m.counter(name, help, func(is tell) {
		m.Counted(func(r *RuleCounts) {
			read(r, func(value float64, more ...string) { is(value, append([]string{r.Domain, r.Path}, more...)...) })
		})
	}, append([]string{"domain", "rule"}, more...)...)
}

// first tells a value once it is more than 0: its series begins with the first hits.
func (is tell) first(n *atomic.Uint64, labels ...string) {
	if value := n.Load(); value > 0 {
		is(float64(value), labels...)
	}
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
					series := []string{labels.of.Domain, labels.of.Path, labels.strategy.String(), labels.title, decisionNames[decision], by}
					if labels.plan != "" {
						series = append(series, labels.plan)
					}
					is(float64(n), series...)
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
