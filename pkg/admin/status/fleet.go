package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors/explain"
)

// MergeDocuments makes the document of a fleet of those of its replicas, at least one:
// traffic is summed, the latency is that of the replica with the highest p99, states are
// the worst. The version and the facts about rules are those of the first replica. It sets
// the hashes of the replicas.
func MergeDocuments(all []client.Answer[Document], replicas []client.Replica) Document {
	sum := all[0].Document
	sum.Traffic, sum.Replicas = Traffic{ErrorsByKind: map[string]ErrorsOfKind{}}, replicas
	sum.Latency.Replica, sum.History = all[0].Address, nil
	if rates := client.Rows(all, func(d *Document) []Rate { return d.Rates }); len(rates) > 0 {
		sum.Rates = client.Join(rates, (*Rate).of, (*Rate).add)
	}
	servers := client.Rows(all, func(d *Document) []Server { return d.Store.Servers })
	sum.Store.Servers = client.Join(servers, (*Server).of, (*Server).add)
	for _, one := range all {
		d := &one.Document
		one.Hash = d.Rules.Hash
		if d.Started.Before(sum.Started) {
			sum.Started = d.Started
		}
		sum.Traffic.add(&d.Traffic)
		if d.Latency.P99 > sum.Latency.P99 {
			sum.Latency = d.Latency
			sum.Latency.Replica = one.Address
		}
		sum.History = sum.History.with(d.History)
		if sum.Rules.Refused == "" {
			sum.Rules.Refused = d.Rules.Refused
		}
		sum.ShadowMode = sum.ShadowMode || d.ShadowMode
	}
	sum.Store.judge()
	sum.Differ = differ(all)
	sum.Health = healthOf(all, replicas, sum.Differ)
	return sum
}

func (t *Traffic) add(more *Traffic) {
	t.Requests, t.Denied, t.Errors = round(t.Requests+more.Requests), round(t.Denied+more.Denied), round(t.Errors+more.Errors)
	t.Total.Requests += more.Total.Requests
	t.Total.Denied += more.Total.Denied
	t.Total.Errors += more.Total.Errors
	for kind, e := range more.ErrorsByKind {
		sum := t.ErrorsByKind[kind]
		t.ErrorsByKind[kind] = ErrorsOfKind{round(sum.Rate + e.Rate), sum.Total + e.Total}
	}
}

// with is the sum of the histories of two replicas, with the higher latencies.
func (h *History) with(more *History) *History {
	if h == nil || more == nil {
		return cmp.Or(h, more)
	}
	if h.Until.Before(more.Until) {
		h, more = more, h
	}
	late := int(h.Until.Sub(more.Until) / time.Duration(cmp.Or(h.Step, more.Step, explain.Duration(time.Second))))
	join(h.Requests, more.Requests, late, plus)
	join(h.Denied, more.Denied, late, plus)
	join(h.Errors, more.Errors, late, plus)
	join(h.P50, more.P50, late, higher)
	join(h.P99, more.P99, late, higher)
	return h
}

func plus(a, b uint32) uint32 { return a + b }
func higher(a, b int64) int64 { return max(a, b) }

// join joins a column into another one, whose last value is that many steps later.
func join[T any](to, from []T, late int, joined func(T, T) T) {
	for i := range min(len(to)-late, len(from)) {
		at := &to[len(to)-late-1-i]
		*at = joined(*at, from[len(from)-1-i])
	}
}

func (r *Rate) of() [2]string { return [2]string{r.Rule, r.Plan} }
func (r *Rate) add(more *Rate) {
	r.Rate, r.Denied = round(r.Rate+more.Rate), round(r.Denied+more.Denied)
}

// States, the worst last.
var (
	storeStates   = []string{"ok", "degraded", "away"}
	breakerStates = []string{"closed", "half-open", "open"}
	decidesStates = []string{"", someKeys, allKeys}
	healthStates  = []string{"ok", "warning", "critical"}
)

func worse(states []string, a, b string) string {
	if slices.Index(states, b) > slices.Index(states, a) {
		return b
	}
	return a
}

func (s *Server) of() [2]string { return [2]string{s.Address, s.Role} }

// add adds the server as another replica sees it.
func (s *Server) add(more *Server) { s.Breaker = worse(breakerStates, s.Breaker, more.Breaker) }

// differ reports whether replicas that answered have different rules.
func differ[D any](all []client.Answer[D]) bool {
	return slices.ContainsFunc(all, func(a client.Answer[D]) bool { return a.Hash != all[0].Hash })
}

// healthOf has each fault once. A fault that some replicas have names them.
func healthOf(all []client.Answer[Document], replicas []client.Replica, differ bool) Health {
	h := Health{State: "ok", Reasons: []string{}}
	if silent := len(replicas) - len(all); silent > 0 {
		h.State = "warning"
		h.Reasons = append(h.Reasons, fmt.Sprintf("%d of %d replicas do not answer.", silent, len(replicas)))
	}
	if differ {
		h.State = "warning"
		h.Reasons = append(h.Reasons, "Replicas have different rules in force.")
	}
	var faults []string
	have := map[string][]string{}
	for _, one := range all {
		h.State = worse(healthStates, h.State, one.Document.Health.State)
		for _, fault := range one.Document.Health.Reasons {
			if have[fault] == nil {
				faults = append(faults, fault)
			}
			have[fault] = append(have[fault], one.Address)
		}
		for _, was := range one.Document.Health.Was {
			h.addWas(was)
		}
	}
	for _, fault := range faults {
		if of := have[fault]; len(of) < len(all) {
			fault = strings.Join(of, ", ") + ": " + fault
		}
		h.Reasons = append(h.Reasons, fault)
	}
	return h
}

// addWas adds a state that a replica had. Where it overlaps the same state of others they are one.
func (h *Health) addWas(w Was) {
	h.Was = slices.DeleteFunc(h.Was, func(o Was) bool {
		same := o.State == w.State && !o.From.After(w.Until) && !w.From.After(o.Until)
		if same && o.From.Before(w.From) {
			w.From, w.Reasons = o.From, o.Reasons
		}
		if same && o.Until.After(w.Until) {
			w.Until = o.Until
		}
		return same
	})
	h.Was = append(h.Was, w)
	slices.SortStableFunc(h.Was, func(a, b Was) int { return b.Until.Compare(a.Until) })
	h.Was = h.Was[:min(len(h.Was), maxWas)]
}

// MergeListings makes a page of n rules of the pages of the replicas, at least one, with
// the sums of their counts. A rule that replicas have with different limits has a row for
// each; a row of only one of several replicas names it. It sets the hashes of the replicas.
func MergeListings(n int, all []client.Answer[Listing], replicas []client.Replica) Listing {
	sum := Listing{Hash: all[0].Document.Hash, Step: all[0].Document.Step, Replicas: replicas}
	var rows []*ListingRule
	of := map[string]*ListingRule{} // by the rule without its counts
	for _, one := range all {
		l := &one.Document
		one.Hash = l.Hash
		sum.Total, sum.Matched = max(sum.Total, l.Total), max(sum.Matched, l.Matched)
		at := 0 // where rows stand that only this replica has
		for i := range l.Rules {
			row := &l.Rules[i]
			key := row.key()
			if known := of[key]; known != nil {
				known.add(row)
				if next := slices.Index(rows[at:], known); next >= 0 {
					at += next + 1
				}
				continue
			}
			of[key], row.Replica = row, one.Address
			rows = slices.Insert(rows, at, row)
			at++
		}
	}
	sum.Rules = []ListingRule{}
	for _, row := range rows[:min(n, len(rows))] {
		if len(all) == 1 {
			row.Replica = ""
		}
		sum.Rules = append(sum.Rules, *row)
	}
	sum.Differ = differ(all)
	return sum
}

// key is equal for rules that limit the same in the same way, wherever they are written.
func (r *ListingRule) key() string {
	same := *r
	same.File, same.Line, same.Replica, same.RuleCounts, same.Limits = "", 0, "", RuleCounts{}, slices.Clone(r.Limits)
	for i := range same.Limits {
		same.Limits[i].PolicyDecides, same.Limits[i].Overlay = "", nil
	}
	text, _ := json.Marshal(same) // of texts and numbers
	return string(text)
}

// add adds the counts of another replica.
func (r *ListingRule) add(more *ListingRule) {
	r.Replica = ""
	for i := range r.Limits { // as many in both
		r.Limits[i].PolicyDecides = worse(decidesStates, r.Limits[i].PolicyDecides, more.Limits[i].PolicyDecides)
	}
	r.Requests, r.Denied = r.Requests+more.Requests, r.Denied+more.Denied
	r.Rate, r.Denials = round(r.Rate+more.Rate), round(r.Denials+more.Denials)
	r.History, r.Refused = summed(r.History, more.History), summed(r.Refused, more.Refused)
}

// summed adds columns whose last values are of the same time.
func summed(a, b []uint32) []uint32 {
	if len(a) < len(b) {
		a, b = b, a
	}
	join(a, b, 0, plus)
	return a
}
