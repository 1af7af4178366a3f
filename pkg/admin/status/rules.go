package status

import (
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/metrics"
)

// Listing is the JSON of GET /v1/rules: the rules in force in the order of their files.
type Listing struct {
	Hash  string           `json:"hash"`
	Step  explain.Duration `json:"step"` // of history
	Rules []ListingRule    `json:"rules"`
}

// ListingRule is one rule, with its counts of the last 15 minutes.
type ListingRule struct {
	Rule   string `json:"rule"`
	Domain string `json:"domain"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	// Entries are the descriptors from the outermost to that of the rule. The value ""
	// takes any value.
	Entries   []descriptors.Entry `json:"entries"`
	Limits    []ListingLimit      `json:"limits"`
	Unlimited bool                `json:"unlimited,omitempty"`
	Shadow    bool                `json:"shadow,omitempty"`
	Quota     bool                `json:"quota,omitempty"`

	Requests uint64  `json:"requests"`
	Denied   uint64  `json:"denied"`
	Rate     float64 `json:"rate"`        // requests per second, in the last 10 s
	Denials  float64 `json:"denied_rate"` // the same, of denials
	// History and Refused have the requests and the denials of each Step, the oldest
	// first. A rule without requests has none.
	History []uint32 `json:"history,omitempty"`
	Refused []uint32 `json:"history_denied,omitempty"`
}

// ListingLimit is one limit of a rule. Words say what it admits.
type ListingLimit struct {
	Words    string           `json:"words"`
	Name     string           `json:"name,omitempty"`
	Strategy string           `json:"strategy"`
	Limit    uint32           `json:"limit"`
	Window   explain.Duration `json:"window"`
	OnError  string           `json:"on_error"`
}

// listing lists the rules in force.
func (s *Status) listing(now time.Time) *Listing {
	s.mu.Lock()
	tree := s.force.tree
	s.mu.Unlock()
	l := &Listing{Hash: s.InForce().Hash, Step: explain.Duration(binSeconds * time.Second), Rules: []ListingRule{}}
	for _, domain := range tree.Domains() {
		var way []*descriptors.Node
		var walk func(n *descriptors.Node)
		walk = func(n *descriptors.Node) {
			for _, child := range n.Children() {
				way = append(way, child)
				if child.Rule != nil {
					rule := newListingRule(domain.Name, child.Rule, way)
					s.count(&rule, now)
					l.Rules = append(l.Rules, rule)
				}
				walk(child)
				way = way[:len(way)-1]
			}
		}
		walk(domain.Root())
	}
	return l
}

func newListingRule(domain string, r *descriptors.Rule, way []*descriptors.Node) ListingRule {
	rule := ListingRule{
		Rule: r.Path, Domain: domain, File: r.Pos.File, Line: r.Pos.Line,
		Entries: []descriptors.Entry{}, Limits: []ListingLimit{},
		Unlimited: r.Unlimited, Shadow: r.Shadow, Quota: r.Quota,
	}
	for _, n := range way {
		rule.Entries = append(rule.Entries, descriptors.Entry{Key: n.Key, Value: n.Value})
	}
	for i := range r.Limits {
		limit := &r.Limits[i]
		rule.Limits = append(rule.Limits, ListingLimit{
			Words: words(limit, way), Name: limit.Name, Strategy: limit.Strategy.String(),
			Limit: limit.Requests, Window: explain.Duration(limit.Window), OnError: limit.OnError.String(),
		})
	}
	return rule
}

// count adds the counts of a rule.
func (s *Status) count(r *ListingRule, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.rules[metrics.RuleName{Domain: r.Domain, Path: r.Rule}]
	if p == nil {
		return
	}
	rates := p.rates(s.age(now))
	r.Rate, r.Denials = round(sum(rates)), round(rates[metrics.EndDenied])
	if p.bins.slots == nil {
		r.Requests, r.Denied = sum(p.seen), p.seen[metrics.EndDenied]
		return
	}
	for e := range p.bins.all() {
		requests := sum(e)
		r.History, r.Refused = append(r.History, requests), append(r.Refused, e[metrics.EndDenied])
		r.Requests += uint64(requests)
		r.Denied += uint64(e[metrics.EndDenied])
	}
}
