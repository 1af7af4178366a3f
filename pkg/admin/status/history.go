package status

import (
	"iter"
	"time"

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

// ring keeps a value for each of the newest steps of time, which are counted from the
// epoch.
type ring[T any] struct {
	slots []T
	at    int64 // the newest step
}

func newRing[T any](size int) ring[T] { return ring[T]{slots: make([]T, size)} }

// to makes step the newest one and returns its value. Steps between it and the newest one
// before have zero values. A clock that was set back makes the values older than they are.
func (r *ring[T]) to(step int64) *T {
	size := int64(len(r.slots))
	if step < r.at {
		shift := ring[T]{slots: make([]T, size), at: step - size}
		for v := range r.all() {
			*shift.to(shift.at + 1) = v
		}
		*r = shift
	}
	for r.at = max(r.at, step-size); r.at < step; {
		r.at++
		clear(r.slots[r.at%size : r.at%size+1])
	}
	return &r.slots[step%size]
}

// all gives the values, the oldest first.
func (r *ring[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := len(r.slots) - 1; i >= 0 && yield(*r.back(int64(i))); i-- {
		}
	}
}

// back is the value of the step i before the newest.
func (r *ring[T]) back(i int64) *T {
	size := int64(len(r.slots))
	return &r.slots[(r.at-i+size)%size]
}

// ends counts requests, or the descriptors of a rule, by how they ended.
type ends = [metrics.Ends]uint32

// past is the newest counts of the process or of a rule. Status.mu guards it.
type past struct {
	of      *metrics.RuleCounts // nil for the process
	seen    [metrics.Ends]uint64
	seconds ring[ends]
	bins    ring[ends] // without slots: no sparkline
}

// advance moves the counts since the last call into the second now. If seconds were left
// out because the process had no processor, all of them get an equal part; there are left
// of them with now.
func (p *past) advance(now int64, counts [metrics.Ends]uint64) (left uint64) {
	left = 1
	if p.seconds.at > 0 && now > p.seconds.at {
		left = uint64(min(now-p.seconds.at, int64(len(p.seconds.slots))))
	}
	for i := range left {
		s := p.seconds.to(now - int64(left-1-i))
		for end, n := range counts {
			n -= p.seen[end]
			s[end] += uint32(n*(i+1)/left - n*i/left)
		}
	}
	if p.bins.slots != nil {
		bin := p.bins.to(now / binSeconds)
		for end, n := range counts {
			bin[end] += uint32(n - p.seen[end])
		}
	}
	p.seen = counts
	return left
}

// rates are the requests per second of the last rateSeconds. up is the age of the process in
// seconds.
func (p *past) rates(up int64) Counts[float64] {
	over := min(max(up, 1), rateSeconds)
	var rates [metrics.Ends]float64
	for i := range over {
		for end, n := range p.seconds.back(i) {
			rates[end] += float64(n) / float64(over)
		}
	}
	c := countsOf(rates)
	return Counts[float64]{round(c.Requests), round(c.Denied), round(c.Errors)}
}

// history is the last 15 minutes of the process. Status.mu guards it.
type history struct {
	past
	took        ring[latency.Counts] // of all requests until then, in the last minute
	percentiles ring[Percentiles[int64]]
	failed      ring[failures] // of all requests until then, in the last rateSeconds
}

// failures are the errors of requests by kind.
type failures = [service.Results]uint64

// advance moves the requests that were counted since the last call into the second now.
func (h *history) advance(now int64, took latency.Counts, ended [metrics.Ends]uint64, failed failures) {
	before, failedBefore := *h.took.back(0), *h.failed.back(0)
	second := took.Since(before)
	tail := Percentiles[int64]{second.Percentile(.5).Microseconds(), second.Percentile(.99).Microseconds()}
	left := int64(h.past.advance(now, ended))
	for i := range left {
		*h.took.to(now - left + 1 + i) = before
		*h.failed.to(now - left + 1 + i) = failedBefore
		*h.percentiles.to(now - left + 1 + i) = tail
	}
	*h.took.back(0), *h.failed.back(0) = took, failed
}

// errorKinds are the names of errors, by service.Result.
var errorKinds = map[service.Result]string{
	service.Invalid: "invalid_request", service.NoRules: "no_rules",
	service.NoStore: "store_unavailable", service.CallGone: "caller_gone",
}

// byKind are the errors by kind. up is the age of the process in seconds.
func (h *history) byKind(up int64) map[string]ErrorsOfKind {
	over := min(max(up, 1), rateSeconds)
	all := map[string]ErrorsOfKind{}
	for result, kind := range errorKinds {
		total := h.failed.back(0)[result]
		all[kind] = ErrorsOfKind{round(float64(total-h.failed.back(over)[result]) / float64(over)), total}
	}
	return all
}

// recent is the latency of the last minute.
func (h *history) recent() latency.Counts { return h.took.back(0).Since(*h.took.back(latencySeconds)) }

// columns are the history as columns.
func (s *Status) columns() *History {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &History{Until: time.Unix(s.history.seconds.at, 0)}
	for second := range s.history.seconds.all() {
		n := countsOf(second)
		h.Requests, h.Denied, h.Errors = append(h.Requests, n.Requests), append(h.Denied, n.Denied), append(h.Errors, n.Errors)
	}
	for second := range s.history.percentiles.all() {
		h.P50, h.P99 = append(h.P50, second.P50), append(h.P99, second.P99)
	}
	return h
}

// newest is the newest second.
func (s *Status) newest() *Second {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.history
	return &Second{time.Unix(h.seconds.at, 0), countsOf(*h.seconds.back(0)), *h.percentiles.back(0)}
}
