package status

import (
	"iter"
	"time"

	"example.org/rls/internal/bounded"
	"example.org/rls/internal/latency"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

const (
	// maxHistories bounds the rules that have a sparkline, and with them the memory:
	// about 4 MiB. Other rules have rates and totals.
	maxHistories = 4096
	// binSeconds is the time that one point of a rule's sparkline stands for.
	binSeconds = 15
	bins       = historySeconds / binSeconds
	// historySeconds is the length of the history.
	historySeconds = 15 * 60
	// latencySeconds is the time that percentiles of latency are about.
	latencySeconds = 60
	// rateSeconds is the time that rates are averages of.
	rateSeconds = 10
)

// ends has the requests, or the descriptors of a rule, since the start, by how they ended. It wraps
// around.
type ends [metrics.Ends]uint32

// since counts the requests between two ends: before, and e.
func (e ends) since(before ends) Counts[uint32] {
	for end := range e {
		e[end] -= before[end]
	}
	return countsOf(e)
}

// each gives the counts of each of the last n steps of a ring, the oldest first.
func each(r *bounded.Ring[ends], n int) iter.Seq[Counts[uint32]] {
	return func(yield func(Counts[uint32]) bool) {
		for i := n - 1; i >= 0 && yield(r.Back(i).since(r.Back(i+1))); i-- {
		}
	}
}

// past is the history of the counts of the process or of a rule. Status.mu guards it.
type past struct {
	of      *metrics.RuleCounts // nil for the process
	seconds bounded.Ring[ends]
	bins    *bounded.Ring[ends] // at their ends; nil: no sparkline
	at      int64               // the newest second
}

// advance notes the counts at the second to. The process had no processor in the seconds since from:
// all of them get an equal part.
func (p *past) advance(from, to int64, counts [metrics.Ends]uint64) {
	before := p.seconds.Back(0)
	for at := from; at <= to; at++ {
		var now ends
		for end, n := range counts {
			now[end] = before[end] + uint32(uint64(uint32(n)-before[end])*uint64(at-from+1)/uint64(to-from+1))
		}
		*p.seconds.Next() = now
		if p.bins != nil {
			if at%binSeconds == 0 {
				p.bins.Next()
			}
			*p.bins.At(p.bins.Count() - 1) = now
		}
	}
	p.at = to
}

// rates are the requests per second of the last rateSeconds. up is the age of the process in
// seconds.
func (p *past) rates(up int64) Counts[float64] {
	over := min(max(up, 1), rateSeconds)
	n := p.seconds.Back(0).since(p.seconds.Back(int(over)))
	rate := func(n uint32) float64 { return round(float64(n) / float64(over)) }
	return Counts[float64]{rate(n.Requests), rate(n.Denied), rate(n.Errors)}
}

// history is the last 15 minutes of the process. Status.mu guards it.
type history struct {
	past
	ended       [metrics.Ends]uint64
	took        bounded.Ring[latency.Counts] // in the last minute
	percentiles bounded.Ring[Percentiles[int64]]
	failed      bounded.Ring[failures] // in the last rateSeconds
}

func newHistory() *history {
	return &history{
		past: past{seconds: bounded.NewRing[ends](historySeconds + 1)}, took: bounded.NewRing[latency.Counts](latencySeconds + 1),
		percentiles: bounded.NewRing[Percentiles[int64]](historySeconds), failed: bounded.NewRing[failures](rateSeconds + 1),
	}
}

// failures are the errors of requests by kind.
type failures = [service.Results]uint64

// advance notes the counts at the second to. It returns the second that is noted first: some were
// left out if the process had no processor.
func (h *history) advance(to int64, took latency.Counts, ended [metrics.Ends]uint64, failed failures) (from int64) {
	from = to
	if h.at > 0 {
		from = min(max(h.at+1, to-historySeconds+1), to)
	}
	h.past.advance(from, to, ended)
	h.ended = ended
	before, failedBefore := h.took.Back(0), h.failed.Back(0)
	second := took.Since(before)
	tail := Percentiles[int64]{second.Percentile(.5).Microseconds(), second.Percentile(.99).Microseconds()}
	for range to - from {
		*h.took.Next() = before
		*h.failed.Next() = failedBefore
		*h.percentiles.Next() = tail
	}
	*h.took.Next() = took
	*h.failed.Next() = failed
	*h.percentiles.Next() = tail
	return from
}

// errorKinds are the names of errors, by service.Result.
var errorKinds = map[service.Result]string{
	service.Invalid: "invalid_request", service.NoRules: "no_rules",
	service.NoStore: "store_unavailable", service.CallGone: "caller_gone",
}

// byKind are the errors by kind. up is the age of the process in seconds.
func (h *history) byKind(up int64) map[string]ErrorsOfKind {
	over := min(max(up, 1), rateSeconds)
	newest, oldest := h.failed.Back(0), h.failed.Back(int(over))
	all := map[string]ErrorsOfKind{}
	for result, kind := range errorKinds {
		all[kind] = ErrorsOfKind{round(float64(newest[result]-oldest[result]) / float64(over)), newest[result]}
	}
	return all
}

// recent is the latency of the last minute.
func (h *history) recent() latency.Counts { return h.took.Back(0).Since(h.took.Back(latencySeconds)) }

// columns are the history as columns.
func (s *Status) columns() *History {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &History{Until: time.Unix(s.history.at, 0)}
	for n := range each(&s.history.seconds, historySeconds) {
		h.Requests, h.Denied, h.Errors = append(h.Requests, n.Requests), append(h.Denied, n.Denied), append(h.Errors, n.Errors)
	}
	for i := range historySeconds {
		second := s.history.percentiles.Back(historySeconds - 1 - i)
		h.P50, h.P99 = append(h.P50, second.P50), append(h.P99, second.P99)
	}
	return h
}

// newest is the newest second.
func (s *Status) newest() *Second {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.history
	return &Second{time.Unix(h.at, 0), h.seconds.Back(0).since(h.seconds.Back(1)), h.percentiles.Back(0)}
}
