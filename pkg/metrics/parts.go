package metrics

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/near"
)

// The exported functions of this file add the metrics of a part of the process. They must
// be called before metrics are sent.

// countProcess adds the metrics that every process has.
func (m *Metrics) countProcess() {
	m.counter("rls_requests_total", "Rate-limit requests answered, over gRPC or HTTP, by gRPC status code.", func(is tell) {
		for code := range m.requests {
			is(float64(m.requests[code].Load()), codes.Code(code).String())
		}
	}, "code")
	m.histogram("rls_decision_duration_seconds", "Time from a request's arrival to its answer, by result: ok, over_limit or error. The wait for a turn in a queue is not included.", func(is tellDurations) {
		for i, result := range []string{"ok", "over_limit", "error"} {
			is(m.decisions.took[i], result)
		}
	}, "result")
	m.counter("rls_panics_total", "Requests that panicked and were answered INTERNAL.", one(m.panics.Load))
	m.counter("rls_requests_beyond_caps_total", "Requests beyond REQUEST_MAX_BYTES, REQUEST_MAX_DESCRIPTORS or REQUEST_MAX_ENTRIES, which were denied, or refused with REQUEST_BEYOND_CAPS=error.", one(m.decisions.beyondCaps.Load))
	m.counter("rls_connections_cut_off_total", "gRPC connections closed because their client cancelled more calls than GRPC_MAX_CANCELLATIONS_PER_SECOND.", one(m.cutOff.Load))
	m.counter("rls_store_clock_errors_total", "Failed attempts to read the clock of a Redis, after which this process uses its own clock.", one(m.clockErrors.Load))
	m.counter("rls_series_overflow_total", "Times that something was counted as `other` because there are METRICS_MAX_SERIES series or a name is too long.", one(m.paths.overflow.Load))
	m.counter("rls_config_loads_total", "Loads of the rules, by result: success or error.", func(is tell) {
		is(float64(m.paths.loaded.n.Load()), "success")
		is(float64(m.paths.loadFailed.n.Load()), "error")
	}, "result")
	m.refused = m.flag("rls_config_refused", "1 while the rules that were read last are refused, and older rules or none are in force, else 0.")
	m.gauge("rls_config_last_success_timestamp_seconds", "When rules were last loaded without an error, in seconds since the epoch; 0 is never.", func(is tell) {
		is(float64(m.lastLoad.Load()) / 1e9)
	})
	m.gauge("rls_config_age_seconds", "Seconds since rules were last loaded without an error; 0 before that.", func(is tell) {
		age := time.Duration(0)
		if last := m.lastLoad.Load(); last != 0 {
			age = time.Since(time.Unix(0, last))
		}
		is(age.Seconds())
	})
	m.gauge("rls_rules", "Rules in force.", one(m.rules.Load))
	m.gauge("rls_rules_hash", "A number that is equal in processes with the same rules in force, and differs between different rules; 0 without rules.", one(m.rulesHash.Load))
}

// Skipped returns the function that sets the number of skipped problems: problems of the
// rules in force that left out a descriptor or a file instead of refusing all rules.
func (m *Metrics) Skipped() func(problems int) {
	var skipped atomic.Int64
	m.gauge("rls_config_skipped_problems", "Problems of the rules in force for which a descriptor or a file was left out (CONFIG_ON_ERROR=skip).", one(skipped.Load))
	return func(problems int) { skipped.Store(int64(problems)) }
}

// SourceGone returns the function that says whether the files of a folder with rules are gone.
func (m *Metrics) SourceGone() func(bool) {
	return m.flag("rls_rules_source_gone", "1 while the folder with the rules is missing or has no files and the rules read from it before stay in force, else 0.")
}

// Connected returns the function that says whether a management server that sends rules is
// connected.
func (m *Metrics) Connected() func(bool) {
	return m.flag("rls_xds_connected", "1 while a stream from the management server that sends the rules is open, else 0.")
}

// Memory adds the metrics of the embedded store.
func (m *Metrics) Memory(keys func() int, evicted func() uint64) {
	m.gauge("rls_store_keys", "Keys in the embedded store, including expired keys that were not yet removed.", one(keys))
	m.counter("rls_memory_evictions_total", "Keys that were removed before they expired, because the embedded store was full.", one(evicted))
}

// Breakers adds the states of the servers of the backend of that name, and the number of
// servers that are away by the role of their store. Stores may share a server, which then
// has the state that lets the fewest calls pass.
func (m *Metrics) Breakers(backend string, watches []*breaker.Watch) {
	m.gauge("rls_store_servers_away", "Servers of the store that do not answer or cannot serve.", func(is tell) {
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
	m.gauge("rls_breaker_state", "State of the breaker before a server of the store: 0 closed, 1 half-open, 2 open.", func(is tell) {
		for server, condition := range worst() {
			is(float64(condition), backend, server)
		}
	}, "backend", "server")
	m.gauge("rls_policy_active", "1 while failure policies decide the limits on a server of the store, because its breaker is not closed, else 0.", func(is tell) {
		for server, condition := range worst() {
			is(oneIf(condition != breaker.Closed), backend, server)
		}
	}, "backend", "server")
}

// Leases adds the counts of leases.
func (m *Metrics) Leases(stats func() near.LeaseStats) {
	m.counter("rls_lease_hits_total", "Hits that this process charged ahead, used from leases, returned unused, left unused because their bucket has refilled, and lost with their window or by an error.", func(is tell) {
		s := stats()
		for event, n := range map[string]uint64{"charged": s.Leased, "used": s.Used, "returned": s.Returned, "refilled": s.Refilled, "lost": s.Lost} {
			is(float64(n), event)
		}
	}, "event")
	m.gauge("rls_lease_hits", "Hits that leases of this process hold.", func(is tell) { is(float64(stats().Held)) })
	m.gauge("rls_lease_keys", "Keys that this process asks for so often that they are leased.", func(is tell) { is(float64(stats().Keys)) })
}

// Pool adds the metrics of connections to a Redis under envoyproxy/ratelimit's name for
// them: redis_pool, or redis_per_second_pool. connections returns how many connections are
// open, and how many were opened so far.
func (m *Metrics) Pool(name string, connections func() (open, opened int64)) {
	read := func(stat string, gauge bool, help string, value func(open, opened int64) int64) {
		m.paths.reads("ratelimit."+name+"."+stat, gauge, help, func() uint64 { return uint64(max(0, value(connections()))) })
	}
	read("cx_active", true, "Open connections to Redis.", func(open, _ int64) int64 { return open })
	read("cx_total", false, "Connections to Redis that were opened.", func(_, opened int64) int64 { return opened })
	read("cx_local_close", false, "Connections to Redis that were closed.", func(open, opened int64) int64 { return opened - open })
}

// LocalCache adds the metrics of the local cache. In envoyproxy/ratelimit all of them are
// gauges.
func (m *Metrics) LocalCache(stats func() near.CacheStats) {
	read := func(stat, help string, value func(near.CacheStats) uint64) {
		m.paths.reads("ratelimit.localcache."+stat, true, help, func() uint64 { return value(stats()) })
	}
	read("hitCount", "Look-ups in the local cache that were answered from it.", func(s near.CacheStats) uint64 { return s.Hits })
	read("missCount", "Look-ups in the local cache that were not answered from it.", func(s near.CacheStats) uint64 { return s.Misses })
	read("lookupCount", "Look-ups in the local cache.", func(s near.CacheStats) uint64 { return s.Hits + s.Misses })
	read("entryCount", "Keys in the local cache.", func(s near.CacheStats) uint64 { return s.Entries })
	read("evacuateCount", "Keys that left the local cache because it was full.", func(s near.CacheStats) uint64 { return s.Evicted })
	read("expiredCount", "Look-ups in the local cache that found a key whose time was over.", func(s near.CacheStats) uint64 { return s.Expired })
	read("overwriteCount", "Keys in the local cache that were written again.", func(s near.CacheStats) uint64 { return s.Overwritten })
	read("averageAccessTime", "Estimate of when the keys in the local cache were written, in seconds since the epoch.", func(s near.CacheStats) uint64 { return s.MeanTime })
}
