package status

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/metrics"
)

// Document is the JSON of GET /v1/status, and of each event of GET /v1/events.
type Document struct {
	Version string `json:"version"`
	// Installation is the name that operators have given this one.
	Installation string `json:"installation,omitempty"`

	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
	Health  Health    `json:"health"`
	Traffic Traffic   `json:"traffic"`
	Latency Latency   `json:"latency"`
	Store   Store     `json:"store"`
	Rules   InForce   `json:"rules"`
	// ReplicaCount is the number of processes that share the store, 0 if it is not known.
	ReplicaCount int `json:"replica_count,omitempty"`
	// ShadowMode: the service denies nothing.
	ShadowMode bool `json:"shadow_mode,omitempty"`
	// Fleet: the process knows where the other replicas are.
	Fleet bool `json:"fleet,omitempty"`
	// History is in the first event of a listener, and where it is asked for.
	History *History `json:"history,omitempty"`
	// Second is in the other events, and Rates in all of them.
	Second *Second `json:"second,omitempty"`
	Rates  []Rate  `json:"rates,omitempty"`
	// Replicas and Differ (replicas have different rules in force) are of a fleet only.
	Replicas []client.Replica `json:"replicas,omitempty"`
	Differ   bool             `json:"differ,omitempty"`
}

// Health says whether an operator has to do something: State is ok, warning (requests are
// decided, and something is wrong) or critical (requests are not decided by the store or
// by rules). Reasons has a sentence for each fault.
type Health struct {
	State   string   `json:"state"`
	Reasons []string `json:"reasons"`
	// Was has states that have ended in the last 10 minutes, the newest first, at most 6.
	Was []Was `json:"was,omitempty"`
}

// Was is a state that was not ok, and the reasons when it began.
type Was struct {
	State   string    `json:"state"`
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"`
	Reasons []string  `json:"reasons"`
}

// Counts are of all requests, of those that were denied and of those that ended with an error.
type Counts[T any] struct {
	Requests T `json:"requests"`
	Denied   T `json:"denied"`
	Errors   T `json:"errors"`
}

func countsOf[T uint64 | uint32](ends [metrics.Ends]T) Counts[T] {
	denied, failed := ends[metrics.EndDenied], ends[metrics.EndFailed]
	return Counts[T]{ends[metrics.EndPassed] + denied + failed, denied, failed}
}

// Traffic has requests per second, as averages of the last 10 s, and requests since the
// start of the process.
type Traffic struct {
	Counts[float64]
	Total Counts[uint64] `json:"total"`
	// ErrorsByKind has invalid_request (the request is wrong), no_rules (none are loaded),
	// store_unavailable (and no policy decided) and caller_gone (before the decision). Their
	// sums are Errors and Total.Errors.
	ErrorsByKind map[string]ErrorsOfKind `json:"errors_by_kind"`
}

// ErrorsOfKind has errors per second in the last 10 s, and those since the start.
type ErrorsOfKind struct {
	Rate  float64 `json:"rate"`
	Total uint64  `json:"total"`
}

// Latency has percentiles of the time until the answer, in the last minute.
type Latency struct {
	P50 explain.Duration `json:"p50"`
	P90 explain.Duration `json:"p90"`
	P99 explain.Duration `json:"p99"`
	// Replica is the replica that has these; only of a fleet.
	Replica string `json:"replica,omitempty"`
}

// Store is the state of the store: State is ok, degraded (some servers are away) or away
// (all servers of a role are away).
type Store struct {
	Backend string   `json:"backend"` // memory, redis, memcache
	State   string   `json:"state"`
	Servers []Server `json:"servers"` // empty for a store in this process
	// PolicyDecides is absent while the store decides all limits. Else failure policies
	// decide now: the limits of all keys, or of some, because other servers are there.
	PolicyDecides string `json:"policy_decides,omitempty"`
}

// Server is a server of the store. Breaker is closed (calls pass), half-open or open
// (calls are refused until a probe succeeds).
type Server struct {
	Address string `json:"address"`
	Role    string `json:"role"`
	Breaker string `json:"breaker"`
}

// InForce describes the rules in force.
type InForce struct {
	Source string `json:"source"` // file or xds
	Path   string `json:"path"`   // the folder, or the server
	// Hash is equal in processes with the same rules in force. It is empty without rules,
	// and so is Loaded, the time at which they came into force.
	Hash     string     `json:"hash"`
	Loaded   *time.Time `json:"loaded"`
	Domains  int        `json:"domains"`
	Rules    int        `json:"rules"`
	Warnings []string   `json:"warnings"`
	// Refused says why the newest rules are not in force; empty if they are.
	Refused string `json:"refused,omitempty"`
}

// History has 900 values, each of one Step, the oldest first. The newest ends with the second Until.
type History struct {
	Step  explain.Duration `json:"step"` // 1 s, 4 s or 24 s
	Until time.Time        `json:"until"`
	Counts[[]uint32]
	Percentiles[[]int64]
}

// Second is the newest second of the history.
type Second struct {
	At time.Time `json:"at"`
	Counts[uint32]
	Percentiles[int64]
}

// Percentiles of latency are in microseconds, 0 without requests.
type Percentiles[T any] struct {
	P50 T `json:"p50_us"`
	P99 T `json:"p99_us"`
}

// Rate is the live rate of a rule, or of a plan that rows of its table give, per second.
type Rate struct {
	Rule   string  `json:"rule"`
	Plan   string  `json:"plan,omitempty"` // that rows give
	Rate   float64 `json:"rate"`
	Denied float64 `json:"denied"`
}

// maxRates is the number of rules whose rates are in each event: the busiest ones.
const maxRates = 200

// InForce describes the rules in force.
func (s *Status) InForce() InForce {
	s.mu.Lock()
	in, tree := s.inForce, s.tree
	s.mu.Unlock()
	if tree != nil {
		in.Hash = fmt.Sprintf("%016x", tree.Hash())
	}
	return in
}

// describe makes the part that all Documents have.
func (s *Status) describe(now time.Time) *Document {
	d := s.options.Facts
	d.Started, d.Now, d.Store, d.Rules = s.started, now, s.store(), s.InForce()
	if s.options.Replicas != nil {
		d.ReplicaCount = s.options.Replicas()
	}
	s.mu.Lock()
	rates, total, recent, kinds := s.history.rates(s.age(now)), s.history.ended, s.history.recent(), s.history.byKind(s.age(now))
	was := s.history.was(now)
	s.mu.Unlock()
	d.Traffic = Traffic{rates, countsOf(total), kinds}
	d.Latency = Latency{P50: explain.Duration(recent.Percentile(.5)), P90: explain.Duration(recent.Percentile(.9)), P99: explain.Duration(recent.Percentile(.99))}
	d.Health = health(&d, s.options.GrantsKnown == nil || s.options.GrantsKnown())
	d.Health.Was = was
	return &d
}

// age is the age of the process in seconds.
func (s *Status) age(now time.Time) int64 { return int64(now.Sub(s.started).Seconds()) }

func (s *Status) store() Store {
	store := Store{Backend: s.options.Facts.Store.Backend, Servers: []Server{}}
	if s.options.Servers != nil {
		store.Servers = append(store.Servers, s.options.Servers()...)
	}
	store.judge()
	return store
}

// judge sets State and PolicyDecides by the servers.
func (s *Store) judge() {
	s.State, s.PolicyDecides = "ok", s.decides("")
	for _, server := range s.Servers {
		ofRole := slices.Index(decidesStates, s.decides(server.Role))
		s.State = worse(storeStates, s.State, storeStates[ofRole])
	}
}

// The keys of limits that failure policies decide now, in place of the store.
const (
	someKeys = "some"
	allKeys  = "all"
)

// decides tells for which keys of the servers of a role policies decide now; "" for none.
func (s *Store) decides(role string) string {
	switch n, away := s.count(role); away {
	case 0:
		return ""
	case n:
		return allKeys
	}
	return someKeys
}

// count counts the servers of a role, or all if it is "", and those of them that are away.
func (s *Store) count(role string) (n, away int) {
	for _, server := range s.Servers {
		if role != "" && server.Role != role {
			continue
		}
		if n++; server.Breaker != "closed" {
			away++
		}
	}
	return n, away
}

// roleOf is the role of the servers that keep limits with a window.
func (s *Store) roleOf(window time.Duration) string {
	const perSecond = "per-second"
	if window == time.Second && slices.ContainsFunc(s.Servers, func(server Server) bool { return server.Role == perSecond }) {
		return perSecond
	}
	return "main"
}

// health lists the faults, the worst first. grantsKnown is false until the store has told the grants until
// a time.
func health(d *Document, grantsKnown bool) Health {
	h := Health{State: "ok", Reasons: []string{}}
	servers, away := d.Store.count("")
	for _, fault := range []struct {
		is            bool
		state, reason string
	}{
		{d.Rules.Loaded == nil, "critical", "No rules are in force: every request is answered with an error."},
		{d.Store.State == "away", "critical", "The store is away: failure policies decide in its place."},
		{d.Store.State == "degraded", "warning", fmt.Sprintf("%d of %d servers of the store are away.", away, servers)},
		{d.Rules.Refused != "", "warning", "The newest rules were refused."},
		{!grantsKnown, "warning", "The grants until a time are not known, because the store has not told them since the start."},
		{d.Traffic.Errors > 0, "warning", fmt.Sprintf("%.3g requests a second end with an error.", d.Traffic.Errors)},
		{d.ShadowMode, "warning", "The service is in shadow mode: it denies nothing."},
	} {
		if !fault.is {
			continue
		}
		if h.State == "ok" {
			h.State = fault.state
		}
		h.Reasons = append(h.Reasons, fault.reason)
	}
	return h
}

// rates are the live rates of the busiest rules.
func (s *Status) rates(now time.Time) []Rate {
	var all []Rate
	s.mu.Lock()
	for name, p := range s.rules {
		if r := p.rates(s.age(now)); r.Requests > 0 && p.of.InForce() {
			all = append(all, Rate{Rule: name.Path, Plan: name.Plan, Rate: r.Requests, Denied: r.Denied})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Plan, b.Plan))
	})
	return all[:min(len(all), maxRates)]
}

// round keeps numbers in JSON short.
func round(rate float64) float64 { return float64(int64(rate*100+0.5)) / 100 }
