package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/near"
)

// This file has every metric of our own. The exported functions add the metrics of a part of the
// process. They must be called before metrics are sent.

// countProcess adds the metrics that every process has.
func (m *Metrics) countProcess() {
	m.counter("rls_requests_total", "Answers, over gRPC and HTTP, by gRPC status.", func(is tell) {
		for code := range m.requests {
			is(float64(m.requests[code].Load()), codes.Code(code).String())
		}
	}, "code")
	m.histogram("rls_decision_duration_seconds", "Time of a decision, without the wait in a queue: ok, over_limit or error.", func(is tellDurations) {
		for i, result := range []string{"ok", "over_limit", "error"} {
			is(m.decisions.took[i], result)
		}
	}, "result")
	m.counter("rls_panics_total", "Requests that panicked and got INTERNAL.", one(m.panics.Load))
	m.counter("rls_requests_beyond_caps_total", "Requests beyond REQUEST_MAX_*, which got the answer of REQUEST_BEYOND_CAPS.", one(m.decisions.beyondCaps.Load))
	m.counter("rls_connections_cut_off_total", "Connections closed for more than GRPC_MAX_CANCELLATIONS_PER_SECOND.", one(m.cutOff.Load))
	m.counter("rls_store_clock_errors_total", "Failed attempts to read a Redis' clock; meanwhile this process uses its own, which may differ.", one(m.clockErrors.Load))
	m.counter("rls_series_overflow_total", "Times that something was counted as `other`, beyond METRICS_MAX_SERIES or for a long name.", one(m.overflow.Load))
	m.counter("rls_config_loads_total", "Loads of the rules: success or error.", func(is tell) {
		is(float64(m.loaded.value()), "success")
		is(float64(m.loadFailed.value()), "error")
	}, "result")
	m.refused = m.flag("rls_config_refused", "1 while the newest rules, overlays or tables are refused, else 0.")
	m.gauge("rls_config_last_success_timestamp_seconds", "When rules were last loaded without an error; 0 is never.", func(is tell) {
		is(float64(m.lastLoad.Load()) / 1e9)
	})
	m.gauge("rls_config_age_seconds", "Seconds since rules were last loaded without an error.", func(is tell) {
		age := time.Duration(0)
		if last := m.lastLoad.Load(); last != 0 {
			age = time.Since(time.Unix(0, last))
		}
		is(age.Seconds())
	})
	m.gauge("rls_rules", "Rules in force; 0 also if no rules are wanted.", one(func() uint64 { return uint64(m.tree.Load().Rules()) }))
	const exact = 1<<48 - 1 // a float64 holds 48 bits without loss
	m.gauge("rls_rules_hash", "A number that is equal where the same rules are in force; 0 without rules.", one(func() uint64 { return m.tree.Load().Hash() & exact }))
}

// countLimits adds the metrics of limits.
func (m *Metrics) countLimits() {
	retryAfter := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rls_retry_after_seconds", Buckets: []float64{0.1, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600},
		Help: "Time after which denied requests may come again.",
	}, []string{"strategy"})
	for _, strategy := range algorithms.Names() {
		m.decisions.retryAfter = append(m.decisions.retryAfter, retryAfter.WithLabelValues(strategy))
	}
	m.table = append(m.table, retryAfter.Collect)
	m.counter("rls_decisions_total", "Decisions of each limit: allowed, denied, or shadow (denied, but let pass); policy is counted if the store decided. Limits of a plan have the label plan, too.",
		m.decisions.tell, "domain", "rule", "strategy", "limit", "decision", "policy", "plan")
	m.ruleCounter("rls_near_limit_total", "Allowed decisions beyond NEAR_LIMIT_RATIO.", func(r *RuleCounts, is tell) {
		for strategy, s := range r.strategies {
			is(float64(s.near.Load()), strategy.String())
		}
	}, "strategy")
	m.ruleCounter("rls_burst_exhausted_total", "Allowed decisions that took the last of a burst.", func(r *RuleCounts, is tell) {
		for strategy, s := range r.strategies {
			if s.burst {
				is(float64(s.exhausted.Load()), strategy.String())
			}
		}
	}, "strategy")
	m.counter("rls_threshold_reached_total", "Requests that passed, by the highest threshold that they reached.", func(is tell) {
		m.Counted(func(r *RuleCounts) {
			for at, n := range r.reached {
				is(float64(n.Load()), r.Path, at.String())
			}
		})
	}, "rule", "at")
	m.ruleCounter("rls_reserved_hits_total", "Hits that reservations have held.", func(r *RuleCounts, is tell) {
		is.first(&r.accounts.reserved)
	})
	m.ruleCounter("rls_settled_hits_total", "Hits by which settlements differed: charged, given_back, or uncharged for lack of room.", func(r *RuleCounts, is tell) {
		is.first(&r.accounts.charged, "charged")
		is.first(&r.accounts.givenBack, "given_back")
		is.first(&r.accounts.uncharged, "uncharged")
	}, "direction")
	m.ruleCounter("rls_overdraft_cut_hits_total", "Hits beyond an overdraft, not charged.", func(r *RuleCounts, is tell) {
		is.first(&r.accounts.cut)
	})
}

// Skipped returns the function that sets the number of skipped problems: problems of the
// rules in force that left out a descriptor or a file instead of refusing all rules.
func (m *Metrics) Skipped() func(problems int) {
	var skipped atomic.Int64
	m.gauge("rls_config_skipped_problems", "Problems of the rules in force that CONFIG_ON_ERROR=skip left out.", one(skipped.Load))
	return func(problems int) { skipped.Store(int64(problems)) }
}

// SourceGone returns the function that says whether the files of a folder with rules are gone.
func (m *Metrics) SourceGone() func(bool) {
	return m.flag("rls_rules_source_gone", "1 while the folder with the rules is missing or empty, and the last rules stay, else 0.")
}

// Connected returns the function that says whether a management server that sends rules is
// connected.
func (m *Metrics) Connected() func(bool) {
	return m.flag("rls_xds_connected", "1 while a stream from the management server is open, else 0.")
}

// countStore adds the metrics of a store.
func (m *Metrics) countStore(s *Store, backend string) {
	m.histogram("rls_store_duration_seconds", "Time that a request waited for the store.", func(is tellDurations) { is(s.took, backend) }, "backend")
	m.counter("rls_store_errors_total", "Calls to the store that failed or came too late, unless the caller gave up.", func(is tell) {
		is(float64(s.failed.Load()), backend)
	}, "backend")
	m.counter("rls_store_unanswered_hits_total", "Hits of failed or late calls to the store: it may have charged them, and they stay charged.", func(is tell) {
		is(float64(s.unanswered.Load()), backend)
	}, "backend")
	m.gauge("rls_store_up", "1 if the store answered the last call or health check, else 0.", func(is tell) { is(oneIf(s.up.Load()), backend) }, "backend")
}

// Memory adds the metrics of the embedded store.
func (m *Metrics) Memory(keys func() int, evicted func() uint64) {
	m.gauge("rls_store_keys", "Keys in memory, with expired ones not yet removed.", one(keys))
	m.counter("rls_memory_evictions_total", "Keys removed from memory before they expired, because it was full.", one(evicted))
}

// State adds the writes of what outlives the process, to STATE_FILE or to the store: when the last one
// was, and how many have failed.
func (m *Metrics) State(saved func() time.Time, failed func() uint64) {
	m.gauge("rls_state_written_timestamp_seconds", "When STATE_FILE, or the memory in Redis, was last written; 0 is never.", func(is tell) {
		is(float64(saved().UnixMicro()) / 1e6)
	})
	m.counter("rls_state_write_failures_total", "Times that STATE_FILE, or the memory in Redis, could not be written.", one(failed))
}

// Breakers adds the states of the servers of the backend of that name, and the number of
// servers that are away by the role of their store. Stores may share a server, which then
// has the state that lets the fewest calls pass.
func (m *Metrics) Breakers(backend string, watches []*breaker.Watch) {
	m.gauge("rls_store_servers_away", "Servers of the store that do not answer or cannot serve: main or per-second.", func(is tell) {
		for _, w := range watches {
			is(float64(w.Away()), w.Role)
		}
	}, "role")
	worst := func() map[string]breaker.Condition {
		all := map[string]breaker.Condition{} // by server
		for _, w := range watches {
			for _, s := range w.States() {
				all[s.Address] = max(all[s.Address], s.Condition)
			}
		}
		return all
	}
	m.gauge("rls_breaker_state", "State of a server's breaker: 0 closed, 1 half-open, 2 open.", func(is tell) {
		for server, condition := range worst() {
			is(float64(condition), backend, server)
		}
	}, "backend", "server")
	m.gauge("rls_policy_active", "1 while failure policies decide the limits on a server, else 0.", func(is tell) {
		for server, condition := range worst() {
			is(oneIf(condition != breaker.Closed), backend, server)
		}
	}, "backend", "server")
}

// Leases adds the counts of leases.
func (m *Metrics) Leases(stats func() near.LeaseStats) {
	m.counter("rls_lease_hits_total", "Hits of leases: charged ahead, used, returned unused, refilled (the bucket was full without them), lost (window or error).", func(is tell) {
		s := stats()
		for event, n := range map[string]uint64{"charged": s.Leased, "used": s.Used, "returned": s.Returned, "refilled": s.Refilled, "lost": s.Lost} {
			is(float64(n), event)
		}
	}, "event")
	m.gauge("rls_lease_hits", "Hits that leases of this process hold.", func(is tell) { is(float64(stats().Held)) })
	m.gauge("rls_lease_keys", "Keys that this process leases.", func(is tell) { is(float64(stats().Keys)) })
}

// Assigned adds the metrics of Envoy's quota protocol. read returns the open streams, their buckets,
// and the hits per second that are assigned of each rule, by its path. A scrape calls it once, and
// refused, which returns how often buckets were reported that no answer can name.
func (m *Metrics) Assigned(read func() (streams, buckets int, assigned map[string]float64), refused func() uint64) {
	desc := prometheus.NewDesc
	streams := desc("rls_rlqs_streams", "Streams of Envoys that enforce quotas.", nil, nil)
	buckets := desc("rls_rlqs_buckets", "Buckets of these Envoys that match a rule.", nil, nil)
	assigned := desc("rls_rlqs_assigned_hits_per_second", "Hits a second that the buckets of a rule may let pass.", []string{"rule"}, nil)
	unnamed := desc("rls_rlqs_refused_buckets_total", "Buckets with ids that are empty or not UTF-8: no_assignment_behavior decides.", nil, nil)
	m.table = append(m.table, func(to chan<- prometheus.Metric) {
		is := func(desc *prometheus.Desc, value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
		}
		open, reported, rates := read()
		is(streams, float64(open))
		is(buckets, float64(reported))
		to <- prometheus.MustNewConstMetric(unnamed, prometheus.CounterValue, float64(refused()))
		for rule, rate := range rates {
			is(assigned, rate, rule)
		}
	})
}

// TellKey tells of a key: the path of its rule, its label, the requests denied in the last minute, and the
// hits left after the last one, nil if they are not known.
type TellKey = func(rule, key string, denied int64, remaining *int64)

// Limited adds the metrics of the keys that are denied most, which each tells, no label of a rule twice. It
// must be called before metrics are sent.
func (m *Metrics) Limited(each func(TellKey)) {
	m.gauge("rls_top_denied", "With TOP_METRIC: denied requests of the last minute, of the keys denied most.", func(is tell) {
		each(func(rule, key string, denied int64, _ *int64) { is(float64(denied), rule, key) })
	}, "rule", "key")
	m.gauge("rls_top_remaining", "With TOP_METRIC: hits left after the last request of these keys.", func(is tell) {
		each(func(rule, key string, _ int64, remaining *int64) {
			if remaining != nil {
				is(float64(*remaining), rule, key)
			}
		})
	}, "rule", "key")
}
