package load

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/latency"
	"example.org/rls/internal/terminal"
)

// Summary is the result of a load, and the document of it.
type Summary struct {
	Requests  int64    `json:"requests"` // that were sent
	OK        int64    `json:"ok"`
	OverLimit int64    `json:"over_limit"`
	Failed    int64    `json:"errors"`
	Seconds   float64  `json:"seconds"` // until the last answer
	Rate      float64  `json:"rate"`    // of answers, per second
	Latency   Latency  `json:"latency"`
	Histogram []Bucket `json:"histogram"`
	// Answers are the service's answers, if the caller kept them, with null for each request that
	// failed.
	Answers []json.RawMessage `json:"answers,omitempty"`

	// Unsent is the number of requests that were due within the duration and were
	// not sent, because too many others were under way.
	Unsent  int64         `json:"-"`
	Elapsed time.Duration `json:"-"` // until the last answer
	Errors  []Failure     `json:"-"` // most frequent first
}

// Failure is the number of requests that failed with the same error.
type Failure struct {
	Err   error // one of them
	Count int64
}

// Latency describes how long the answers took, without requests that failed.
type Latency struct {
	P50 Duration `json:"p50"`
	P90 Duration `json:"p90"`
	P99 Duration `json:"p99"`
	Max Duration `json:"max"`
}

// Duration is a duration whose JSON is a text such as 1.5ms.
type Duration time.Duration

// Bucket is a bar of a histogram: the answers that took at most To, and longer than
// the To of the bucket before.
type Bucket struct {
	To    Duration `json:"to"`
	Count int64    `json:"count"`
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

func (l *Load) record(took time.Duration, overLimit bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Requests++
	switch {
	case err != nil:
		l.sum.Failed++
		if f, known := l.errors[err.Error()]; known || len(l.errors) < maxErrors {
			l.errors[err.Error()] = Failure{err, f.Count + 1}
		}
		return
	case overLimit:
		l.sum.OverLimit++
	default:
		l.sum.OK++
	}
	took = min(took, bounds[len(bounds)-1])
	l.sum.Latency.Max = max(l.sum.Latency.Max, Duration(took))
	l.took.Observe(took)
}

func (l *Load) summary() Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sum
	s.Errors = slices.SortedFunc(maps.Values(l.errors), func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Err.Error(), b.Err.Error()))
	})
	counts := latency.Read(l.took)
	percentile := func(q float64) Duration { return min(s.Latency.Max, Duration(counts.Percentile(q))) }
	s.Latency, s.Histogram = Latency{percentile(.5), percentile(.9), percentile(.99), s.Latency.Max}, buckets(counts)
	return s
}

// buckets returns the buckets from the first to the last that is not empty.
func buckets(counts latency.Counts) []Bucket {
	all, before := []Bucket{}, uint64(0)
	for _, bound := range bounds {
		upTo := counts.UpTo(bound)
		if upTo > 0 && before < counts.Total() {
			all = append(all, Bucket{Duration(bound), int64(upTo - before)})
		}
		before = upTo
	}
	return all
}

// SoFar returns the number of requests that were answered or failed, and how many of
// them were over the limit or failed.
func (l *Load) SoFar() (done, overLimit, failed int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sum.Requests, l.sum.OverLimit, l.sum.Failed
}

// Text writes the summary for a person.
func (s *Summary) Text(w io.Writer) error {
	colors := terminal.ColorsFor(w)
	paint := func(color func(string) string, count int64, what string) string {
		text := fmt.Sprintf("%d %s", count, what)
		if count > 0 {
			text = color(text)
		}
		return text
	}
	digits := 0
	if s.Rate < 100 {
		digits = 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests in %v, %.*f per second: %s, %s, %s\n", s.Requests, terminal.Short(s.Elapsed), digits, s.Rate,
		paint(colors.Green, s.OK, "OK"), paint(colors.Yellow, s.OverLimit, "over the limit"), paint(colors.Red, s.Failed, "failed"))
	if l := &s.Latency; len(s.Histogram) > 0 {
		fmt.Fprintf(&b, "latency: p50 %v, p90 %v, p99 %v, max %v\n", l.P50.short(), l.P90.short(), l.P99.short(), l.Max.short())
		writeHistogram(&b, s.Histogram)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeHistogram writes a line with a bar for each bucket.
func writeHistogram(b *strings.Builder, buckets []Bucket) {
	const longest = 50 // columns
	highest := slices.MaxFunc(buckets, func(a, b Bucket) int { return cmp.Compare(a.Count, b.Count) }).Count
	for _, bucket := range buckets {
		line := fmt.Sprintf("  to %7v %8d  ", time.Duration(bucket.To), bucket.Count)
		columns := math.Ceil(longest * float64(bucket.Count) / float64(highest))
		b.WriteString(strings.TrimRight(line+strings.Repeat("█", int(columns)), " ") + "\n")
	}
}

func (d Duration) short() time.Duration { return terminal.Short(time.Duration(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// round rounds to three places.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }
