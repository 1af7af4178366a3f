package status

import (
	"iter"
	"slices"
	"time"

	"example.org/rls/internal/bounded"
	"example.org/rls/internal/latency"
	"example.org/rls/pkg/descriptors/explain"
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
	// historySeconds is the length of the shortest history, and the number of values that each has.
	historySeconds = 15 * 60
	// latencySeconds is the time that percentiles of latency are about.
	latencySeconds = 60
	// rateSeconds is the time that rates are averages of.
	rateSeconds = 10
)

// Ranges are the lengths of the histories by the names that callers give them. The longer ones have
// values of more seconds.
var Ranges = map[string]time.Duration{"15m": historySeconds * time.Second, "1h": time.Hour, "6h": 6 * time.Hour}

// coarse are the seconds that one value of the longer ranges stands for.
var coarse = [...]int64{4, 24}

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

// each gives the counts of n steps of a ring, the oldest first. The newest skip steps are left out.
func each(r *bounded.Ring[ends], n, skip int) iter.Seq[Counts[uint32]] {
	return func(yield func(Counts[uint32]) bool) {
		for i := n - 1 + skip; i >= skip && yield(r.Back(i).since(r.Back(i+1))); i-- {
		}
	}
}

// past is the history of the counts of the process or of a rule. Status.mu guards it.
type past struct {
	of      *metrics.RuleCounts // nil for the process
	seconds bounded.Ring[ends]
	bins    []binned
	at      int64 // the newest second
}

// binned has counts at the ends of steps, the newest of which goes on.
type binned struct {
	step int64 // seconds
	ends bounded.Ring[ends]
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
		for i := range p.bins {
			b := &p.bins[i]
			if at%b.step == 0 || b.ends.Count() == 0 {
				b.ends.Next()
			}
			*b.ends.At(b.ends.Count() - 1) = now
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

// history is the past of the process, in all ranges. Status.mu guards it.
type history struct {
	past
	ended  [metrics.Ends]uint64
	took   bounded.Ring[latency.Counts] // in the last minute
	second bounded.Ring[Percentiles[int64]]
	coarse [len(coarse)]tails     // of past.bins
	failed bounded.Ring[failures] // in the last rateSeconds
	worse  bounded.Ring[Was]      // the newest may go on
}

// tails are the percentiles of steps that have ended.
type tails struct {
	began latency.Counts // the calls before the step that goes on
	of    bounded.Ring[Percentiles[int64]]
}

func newHistory() *history {
	h := &history{
		past: past{seconds: bounded.NewRing[ends](historySeconds + 1)}, took: bounded.NewRing[latency.Counts](latencySeconds + 1),
		second: bounded.NewRing[Percentiles[int64]](historySeconds), failed: bounded.NewRing[failures](rateSeconds + 1),
		worse: bounded.NewRing[Was](maxWas),
	}
	for i, step := range coarse {
		h.bins = append(h.bins, binned{step, bounded.NewRing[ends](historySeconds + 2)})
		h.coarse[i].of = bounded.NewRing[Percentiles[int64]](historySeconds)
	}
	return h
}

func percentilesOf(took latency.Counts) Percentiles[int64] {
	return Percentiles[int64]{took.Percentile(.5).Microseconds(), took.Percentile(.99).Microseconds()}
}

// failures are the errors of requests by kind.
type failures = [service.Results]uint64

// advance notes the counts at the second to. It returns the second that is noted first: some were
// left out if the process had no processor.
func (h *history) advance(to int64, took latency.Counts, ended [metrics.Ends]uint64, failed failures) (from int64) {
	from = to
	if h.at > 0 {
		from = min(max(h.at+1, to-historySeconds*coarse[len(coarse)-1]+1), to)
	}
	h.past.advance(from, to, ended)
	h.ended = ended
	before, failedBefore := h.took.Back(0), h.failed.Back(0)
	tail := percentilesOf(took.Since(before))
	for i, step := range coarse {
		// What came in seconds that were left out is of the first step that ended in them.
		for ended, at := before, from; at <= to; ended, at = took, at+1 {
			if c := &h.coarse[i]; at%step == 0 {
				*c.of.Next() = percentilesOf(ended.Since(c.began))
				c.began = ended
			}
		}
	}
	for range to - from {
		*h.took.Next() = before
		*h.failed.Next() = failedBefore
		*h.second.Next() = tail
	}
	*h.took.Next() = took
	*h.failed.Next() = failed
	*h.second.Next() = tail
	return from
}

const (
	// maxWas and wasFor bound the states that are told after their end.
	maxWas = 6
	wasFor = 10 * time.Minute
)

// judged notes since when the process has a state that is not ok.
func (h *history) judged(is Health, at time.Time) {
	if n := h.worse.Count(); n > 0 && h.worse.Back(0).Until.IsZero() {
		if h.worse.Back(0).State == is.State {
			return
		}
		h.worse.At(n - 1).Until = at
	}
	if is.State != healthStates[0] {
		*h.worse.Next() = Was{State: is.State, From: at, Reasons: is.Reasons}
	}
}

// was are the states that have ended a while ago, the newest first.
func (h *history) was(now time.Time) []Was {
	return slices.DeleteFunc(h.worse.Last(maxWas), func(w Was) bool {
		return w.Until.IsZero() || now.Sub(w.Until) > wasFor
	})
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

// columns are the history of a range as columns.
func (s *Status) columns(of time.Duration) *History {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := int64(of/time.Second) / historySeconds
	counts, tails, until, skip := &s.history.seconds, &s.history.second, s.history.at, 0
	if i := slices.Index(coarse[:], step); i >= 0 { // the newest step goes on
		counts, tails, until, skip = &s.history.bins[i].ends, &s.history.coarse[i].of, until-until%step-1, 1
	}
	h := &History{Step: explain.Duration(of / historySeconds), Until: time.Unix(until, 0)}
	for n := range each(counts, historySeconds, skip) {
		h.Requests, h.Denied, h.Errors = append(h.Requests, n.Requests), append(h.Denied, n.Denied), append(h.Errors, n.Errors)
	}
	for i := range historySeconds {
		tail := tails.Back(historySeconds - 1 - i)
		h.P50, h.P99 = append(h.P50, tail.P50), append(h.P99, tail.P99)
	}
	return h
}

// newest is the newest second.
func (s *Status) newest() *Second {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.history
	return &Second{time.Unix(h.at, 0), h.seconds.Back(0).since(h.seconds.Back(1)), h.second.Back(0)}
}
