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

// recorder counts answers.
type recorder struct {
	mu     sync.Mutex
	sum    Summary // its counts, and of the latency the maximum
	took   *latency.Histogram
	errors map[string]Failure
}

func newRecorder() *recorder {
	return &recorder{took: latency.NewHistogram(scale), errors: map[string]Failure{}}
}

func (r *recorder) record(took time.Duration, overLimit bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.sum.Failed++
		if f, known := r.errors[err.Error()]; known || len(r.errors) < maxErrors {
			r.errors[err.Error()] = Failure{err, f.Count + 1}
		}
		return
	case overLimit:
		r.sum.OverLimit++
	default:
		r.sum.OK++
	}
	took = min(took, bounds[len(bounds)-1])
	r.sum.Latency.Max = max(r.sum.Latency.Max, took)
	r.took.Observe(took)
}

func (r *recorder) summary() Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sum
	s.Errors = slices.SortedFunc(maps.Values(r.errors), func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Err.Error(), b.Err.Error()))
	})
	counts := latency.Read(r.took)
	percentile := func(q float64) time.Duration { return min(s.Latency.Max, counts.Percentile(q)) }
	s.Latency = Latency{percentile(.5), percentile(.9), percentile(.99), s.Latency.Max, buckets(counts)}
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
	l.answers.mu.Lock()
	defer l.answers.mu.Unlock()
	sum := &l.answers.sum
	return sum.Requests(), sum.OverLimit, sum.Failed
}
