package status

import (
	"iter"
	"sync/atomic"
	"time"
)

const (
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
		size := int64(len(r.slots))
		for i := range size {
			if !yield(r.slots[(r.at+1+i)%size]) {
				return
			}
		}
	}
}

// second counts the requests of one second.
type second struct {
	ends     [kinds]uint32 // requests by how they ended
	p50, p99 time.Duration // 0 without requests
}

// history is the last 15 minutes of the process. Status.mu guards it.
type history struct {
	seconds ring[second]
	latency ring[durations]
	seen    [kinds][buckets]uint64 // the counts at the last advance
}

func newHistory() *history {
	return &history{seconds: newRing[second](historySeconds), latency: newRing[durations](latencySeconds)}
}

// advance moves the requests that were counted since the last call into the second now.
// If seconds were left out because the process had no processor, all of them get an equal
// part.
func (h *history) advance(now int64, counts *[kinds][buckets]atomic.Uint64) {
	var took durations
	var ended [kinds]uint64
	for kind := range counts {
		for b := range counts[kind] {
			n := counts[kind][b].Load()
			more := n - h.seen[kind][b]
			h.seen[kind][b] = n
			took[b] += uint32(more)
			ended[kind] += more
		}
	}
	h.latency.to(now).add(&took)
	p50, p99 := took.percentile(0.5), took.percentile(0.99)
	left := uint64(1)
	if h.seconds.at > 0 && now > h.seconds.at {
		left = min(uint64(now-h.seconds.at), historySeconds)
	}
	for i := range left {
		s := h.seconds.to(now - int64(left-1-i))
		for kind, n := range ended {
			s.ends[kind] += uint32(n*(i+1)/left - n*i/left)
		}
		s.p50, s.p99 = p50, p99
	}
}

// recent adds up the latencies of the last minute.
func (h *history) recent() *durations {
	var sum durations
	for d := range h.latency.all() {
		sum.add(&d)
	}
	return &sum
}

// rates are the requests per second of the last rateSeconds, by how they ended. up is the
// age of the process in seconds.
func (h *history) rates(up int64) (rates [kinds]float64) {
	over := min(max(up, 1), rateSeconds)
	size := int64(len(h.seconds.slots))
	for i := range over {
		s := &h.seconds.slots[(h.seconds.at-i+size)%size]
		for kind, n := range s.ends {
			rates[kind] += float64(n) / float64(over)
		}
	}
	return rates
}

// total is the number of requests so far, by how they ended.
func (h *history) total() (total [kinds]uint64) {
	for kind := range h.seen {
		for _, n := range h.seen[kind] {
			total[kind] += n
		}
	}
	return total
}
