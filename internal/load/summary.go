package load

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"example.org/rls/internal/latency"
)

// Summary is the result of a load.
type Summary struct {
	OK, OverLimit, Failed int64
	// Unsent is the number of requests that were due within the duration and were
	// not sent, because too many others were under way.
	Unsent  int64
	Elapsed time.Duration // until the last answer
	Latency Latency
	Errors  []Failure // most frequent first
}

// Requests is the number of requests that were sent.
func (s *Summary) Requests() int64 { return s.OK + s.OverLimit + s.Failed }

// Rate is the number of requests that were answered per second.
func (s *Summary) Rate() float64 {
	if s.Elapsed <= 0 {
		return 0
	}
	return float64(s.Requests()) / s.Elapsed.Seconds()
}

// Failure is the number of requests that failed with the same error.
type Failure struct {
	Err   error // one of them
	Count int64
}

// Latency describes how long the answers took, without requests that failed.
type Latency struct {
	P50, P90, P99, Max time.Duration
	Histogram          []Bucket
}

// Bucket is a bar of a histogram: the answers that took at most To, and longer than
// the To of the bucket before.
type Bucket struct {
	To    time.Duration
	Count int64
}

// steps are the bounds of buckets within a power of ten.
var steps = []float64{1, 1.5, 2, 3, 5, 7}

// bounds has the upper bounds of the buckets, from 10 µs to 7000 s.
var bounds = func() (bounds []time.Duration) {
	for decade := 10 * time.Microsecond; decade <= 1000*time.Second; decade *= 10 {
		for _, step := range steps {
			bounds = append(bounds, time.Duration(step*float64(decade)))
		}
	}
	return bounds
}()

// scale makes percentiles exact to 0.2 %.
var scale = latency.NewScale(time.Microsecond, bounds[len(bounds)-1], 1.002, bounds...)

// maxErrors bounds the number of different messages that are kept.
const maxErrors = 10

// recorder counts answers. The zero value is ready.
type recorder struct {
	mu                    sync.Mutex
	ok, overLimit, failed int64
	longest               time.Duration
	took                  *latency.Histogram
	errors                map[string]Failure
}

func (r *recorder) record(took time.Duration, overLimit bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.fail(err)
		return
	case overLimit:
		r.overLimit++
	default:
		r.ok++
	}
	if r.took == nil {
		r.took = latency.NewHistogram(scale)
	}
	took = min(took, bounds[len(bounds)-1])
	r.longest = max(r.longest, took)
	r.took.Observe(took)
}

// fail needs r.mu.
func (r *recorder) fail(err error) {
	r.failed++
	message := err.Error()
	if r.errors == nil {
		r.errors = map[string]Failure{}
	}
	f, known := r.errors[message]
	if !known && len(r.errors) == maxErrors {
		return
	}
	r.errors[message] = Failure{err, f.Count + 1}
}

func (r *recorder) summary() Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Summary{OK: r.ok, OverLimit: r.overLimit, Failed: r.failed}
	s.Errors = slices.SortedFunc(maps.Values(r.errors), func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Err.Error(), b.Err.Error()))
	})
	if r.took == nil {
		return s
	}
	counts := latency.Read(r.took)
	percentile := func(q float64) time.Duration { return min(r.longest, counts.Percentile(q)) }
	s.Latency = Latency{P50: percentile(.5), P90: percentile(.9), P99: percentile(.99), Max: r.longest, Histogram: buckets(counts)}
	return s
}

// buckets returns the buckets from the first to the last that is not empty.
func buckets(counts latency.Counts) (all []Bucket) {
	var before uint64
	for _, bound := range bounds {
		upTo := counts.UpTo(bound)
		if upTo > 0 && before < counts.Total() {
			all = append(all, Bucket{bound, int64(upTo - before)})
		}
		before = upTo
	}
	return all
}

// SoFar returns the number of requests that were answered or failed, and how many of
// them were over the limit or failed.
func (l *Load) SoFar() (done, overLimit, failed int64) {
	r := &l.answers
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ok + r.overLimit + r.failed, r.overLimit, r.failed
}
