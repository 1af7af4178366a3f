package status

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/metrics"
)

// Listing is the JSON of GET /v1/rules: a page of the rules in force in the order of
// their files, after the pools of each domain.
type Listing struct {
	Hash string           `json:"hash"`
	Step explain.Duration `json:"step"` // of history
	// Total is the number of rules and pools in force, with a row for each plan that rows of a rule's
	// table give beside that of the rule, which is for values without one. Matched is the number of
	// those that match the search.
	Total   int           `json:"total"`
	Matched int           `json:"matched"`
	Rules   []ListingRule `json:"rules"`
	// Replicas and Differ (replicas have different rules in force) are of a fleet only.
	Replicas []client.Replica `json:"replicas,omitempty"`
	Differ   bool             `json:"differ,omitempty"`
}

// page selects, of the rules that have all words of q, n rules after the first offset.
type page struct {
	q         string
	n, offset int
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
	Plan      string              `json:"plan,omitempty"` // that the limits are from
	// Table is the file that gives Rows values limits of their own. ByRow: the row is for the values to
	// which rows of Table give Plan; it has no number of Rows.
	Table  string `json:"table,omitempty"`
	Rows   int    `json:"rows,omitempty"`
	ByRow  bool   `json:"by_row,omitempty"`
	Shadow bool   `json:"shadow,omitempty"`
	Quota  bool   `json:"quota,omitempty"`
	Pool   bool   `json:"pool,omitempty"` // Entries are its name

	RuleCounts
	// Replica is the only replica of a fleet that has the rule with these limits.
	Replica string `json:"replica,omitempty"`
}

// RuleCounts are the counts of a rule in the last 15 minutes.
type RuleCounts struct {
	Requests uint64  `json:"requests"`
	Denied   uint64  `json:"denied"`
	Rate     float64 `json:"rate"`        // requests per second, in the last 10 s
	Denials  float64 `json:"denied_rate"` // the same, of denials
	// History and Refused have the requests and the denials of each Step, the oldest
	// first. A rule without requests has none.
	History []uint32 `json:"history,omitempty"`
	Refused []uint32 `json:"history_denied,omitempty"`
}

// ListingLimit is one limit of a rule. Its Words end with the callers that it counts apart.
type ListingLimit struct {
	explain.Terms
	// OnError is the failure policy. While it decides the limit in place of the store,
	// PolicyDecides is all, or some if it does so for keys on some servers only.
	OnError       string `json:"on_error"`
	PolicyDecides string `json:"policy_decides,omitempty"`
	// Overlay has the places of the fields that overlays have set, by name.
	Overlay descriptors.Laid `json:"overlay,omitempty"`
}

// listing lists a page of the rules in force.
func (s *Status) listing(now time.Time, p page) *Listing {
	s.mu.Lock()
	tree := s.tree
	s.mu.Unlock()
	l := &Listing{Hash: s.InForce().Hash, Step: explain.Duration(binSeconds * time.Second), Rules: []ListingRule{}}
	words := strings.Fields(strings.ToLower(p.q))
	for _, domain := range tree.Domains() {
		for _, name := range slices.Sorted(maps.Keys(domain.Pools)) {
			l.Total++
			l.add(p, words, func() ListingRule {
				return newListingRule(domain.Name, domain.Pools[name], domain.Pools[name].PoolEntries(), nil)
			})
		}
		var walk func(n *descriptors.Node)
		walk = func(n *descriptors.Node) {
			for _, child := range n.Children() {
				if child.Rule != nil {
					for _, r := range child.Rule.Parts() {
						l.Total++
						l.add(p, words, func() ListingRule { return newListingRule(domain.Name, r, child.Way(), child.Apart()) })
					}
				}
				walk(child)
			}
		}
		walk(domain.Root())
	}
	store := s.store()
	for i := range l.Rules {
		s.count(&l.Rules[i], now)
		for j := range l.Rules[i].Limits {
			limit := &l.Rules[i].Limits[j]
			limit.PolicyDecides = store.decides(store.roleOf(time.Duration(limit.Window)))
		}
	}
	return l
}

// add adds a rule if it has the words and is on the page. It makes the rule only then, or
// to look for words.
func (l *Listing) add(p page, words []string, rule func() ListingRule) {
	if len(words) > 0 {
		if r := rule(); !r.has(words) {
			return
		}
	}
	l.Matched++
	if l.Matched > p.offset && len(l.Rules) < p.n {
		l.Rules = append(l.Rules, rule())
	}
}

// has reports whether the texts of the rule have all words, which are in lower case.
func (r *ListingRule) has(words []string) bool {
	texts := []string{r.Rule, r.File + ":" + strconv.Itoa(r.Line)}
	for _, e := range r.Entries {
		texts = append(texts, e.Pair())
	}
	for i := range r.Limits {
		texts = append(texts, r.Limits[i].Words, r.Limits[i].Name, r.Limits[i].Overlay.String())
	}
	for text, is := range map[string]bool{
		"shadow": r.Shadow, "unlimited": r.Unlimited, "table " + r.Table: r.Table != "", "plan " + r.Plan: r.Plan != "",
	} {
		if is {
			texts = append(texts, text)
		}
	}
	all := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(all, word) })
}

func newListingRule(domain string, r *descriptors.Rule, way []descriptors.Entry, apart []string) ListingRule {
	rule := ListingRule{
		Rule: r.Path, Domain: domain, File: r.Pos.File, Line: r.Pos.Line,
		Entries: way, Limits: []ListingLimit{},
		Unlimited: r.Unlimited, Shadow: r.Shadow, Quota: r.Quota, Plan: r.Plan, Pool: r.Pool != "",
	}
	switch t := r.Base().Table; {
	case t == nil:
	case r.RowPlan != "":
		rule.Table, rule.ByRow = t.File, true
	default:
		rule.Table, rule.Rows = t.File, t.Len
	}
	for i := range r.Limits {
		limit := &r.Limits[i]
		listed := ListingLimit{Terms: *explain.TermsOf(limit), OnError: limit.OnError.String(), Overlay: limit.Laid}
		listed.Words += ", " + callers(apart)
		rule.Limits = append(rule.Limits, listed)
	}
	return rule
}

// count adds the counts of a rule.
func (s *Status) count(r *ListingRule, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := metrics.RuleName{Domain: r.Domain, Path: r.Rule}
	if r.ByRow {
		name.Plan = r.Plan
	}
	p := s.rules[name]
	if p == nil {
		return
	}
	rates := p.rates(s.age(now))
	r.Rate, r.Denials = rates.Requests, rates.Denied
	if len(p.bins) == 0 {
		total := countsOf(p.of.Ended())
		r.Requests, r.Denied = total.Requests, total.Denied
		return
	}
	for n := range each(&p.bins[0].ends, bins, 0) {
		r.History, r.Refused = append(r.History, n.Requests), append(r.Refused, n.Denied)
		r.Requests, r.Denied = r.Requests+uint64(n.Requests), r.Denied+uint64(n.Denied)
	}
}

// callers says by the values of which keys a rule counts apart.
func callers(keys []string) string {
	if len(keys) == 0 {
		return "for all together"
	}
	return "per " + strings.Join(keys, " and ")
}
