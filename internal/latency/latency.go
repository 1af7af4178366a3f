// Package latency counts durations in buckets and reads percentiles from the counts.
package latency

import (
	"slices"
	"sync/atomic"
	"time"
)

// Scale has the upper bounds of buckets in ascending order. The lower bound of a bucket is
// the upper bound of the bucket before. One more bucket has the durations beyond the last
// bound.
type Scale []time.Duration

// NewScale returns bounds from shortest to longest, each at most step times the one before,
// and the exact ones among them.
func NewScale(shortest, longest time.Duration, step float64, exact ...time.Duration) Scale {
	s := append(slices.Clone(exact), longest)
	for d := float64(shortest); d < float64(longest); d *= step {
		s = append(s, time.Duration(d))
	}
	slices.Sort(s)
	return slices.Compact(s)
}

// Histogram counts durations. It is safe for concurrent use.
type Histogram struct {
	scale  Scale
	counts []atomic.Uint64
	sum    atomic.Int64
}

// NewHistogram returns a histogram without durations.
func NewHistogram(s Scale) *Histogram {
	return &Histogram{scale: s, counts: make([]atomic.Uint64, len(s)+1)}
}

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	i, _ := slices.BinarySearch(h.scale, d)
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Sum is the sum of all durations.
func (h *Histogram) Sum() time.Duration { return time.Duration(h.sum.Load()) }

// Read returns the durations that histograms of one scale have counted so far, together.
func Read(histograms ...*Histogram) Counts {
	scale := histograms[0].scale
	c := Counts{scale, make([]uint64, len(scale)+1)}
	for _, h := range histograms {
		for i := range h.counts {
			c.buckets[i] += h.counts[i].Load()
		}
	}
	return c
}

// Counts has the number of durations in each bucket. The zero value has none.
type Counts struct {
	scale   Scale
	buckets []uint64
}

// Since returns the durations that were added after earlier, which is an older state of
// the same histograms, or the zero value.
func (c Counts) Since(earlier Counts) Counts {
	more := Counts{c.scale, slices.Clone(c.buckets)}
	for i, n := range earlier.buckets {
		more.buckets[i] -= n
	}
	return more
}

// Total is the number of durations.
func (c Counts) Total() (n uint64) {
	for _, more := range c.buckets {
		n += more
	}
	return n
}

// UpTo is the number of durations of at most d, which is a bound of the scale.
func (c Counts) UpTo(d time.Duration) (n uint64) {
	i, _ := slices.BinarySearch(c.scale, d)
	return Counts{buckets: c.buckets[:i+1]}.Total()
}

// Percentile is a duration that the share q of the durations did not exceed: the bound of
// the bucket in which the share ends. It is 0 without durations.
func (c Counts) Percentile(q float64) time.Duration {
	rank := uint64(q * float64(max(c.Total(), 1)-1))
	for i, n := range c.buckets {
		if rank < n {
			return c.scale[min(i, len(c.scale)-1)]
		}
		rank -= n
	}
	return 0
}
