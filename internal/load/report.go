package load

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"example.org/rls/internal/terminal"
)

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
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests in %v, %s per second: %s, %s, %s\n", s.Requests(), terminal.Short(s.Elapsed), perSecond(s.Rate()),
		paint(colors.Green, s.OK, "OK"), paint(colors.Yellow, s.OverLimit, "over the limit"), paint(colors.Red, s.Failed, "failed"))
	if l := &s.Latency; len(l.Histogram) > 0 {
		fmt.Fprintf(&b, "latency: p50 %v, p90 %v, p99 %v, max %v\n", terminal.Short(l.P50), terminal.Short(l.P90), terminal.Short(l.P99), terminal.Short(l.Max))
		writeHistogram(&b, l.Histogram)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeHistogram writes a line with a bar for each bucket.
func writeHistogram(b *strings.Builder, buckets []Bucket) {
	const longest = 50 // columns
	highest := slices.MaxFunc(buckets, func(a, b Bucket) int { return cmp.Compare(a.Count, b.Count) }).Count
	for _, bucket := range buckets {
		line := fmt.Sprintf("  to %7v %8d  ", bucket.To, bucket.Count)
		columns := math.Ceil(longest * float64(bucket.Count) / float64(highest))
		b.WriteString(strings.TrimRight(line+strings.Repeat("█", int(columns)), " ") + "\n")
	}
}

// perSecond is a rate with a fraction only if it is small.
func perSecond(rate float64) string {
	if rate < 100 {
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

// Document is the summary for programs. Its JSON has the answers if there are any, with
// null in place of a request that failed.
func (s *Summary) Document(answers []json.RawMessage) any {
	type latency struct {
		P50 string `json:"p50"`
		P90 string `json:"p90"`
		P99 string `json:"p99"`
		Max string `json:"max"`
	}
	type bucket struct {
		To    string `json:"to"`
		Count int64  `json:"count"`
	}
	l := &s.Latency
	buckets := make([]bucket, len(l.Histogram))
	for i, b := range l.Histogram {
		buckets[i] = bucket{b.To.String(), b.Count}
	}
	return struct {
		Requests  int64             `json:"requests"`
		OK        int64             `json:"ok"`
		OverLimit int64             `json:"over_limit"`
		Errors    int64             `json:"errors"`
		Seconds   float64           `json:"seconds"`
		Rate      float64           `json:"rate"`
		Latency   latency           `json:"latency"`
		Histogram []bucket          `json:"histogram"`
		Answers   []json.RawMessage `json:"answers,omitempty"`
	}{
		s.Requests(), s.OK, s.OverLimit, s.Failed, round(s.Elapsed.Seconds()), round(s.Rate()),
		latency{l.P50.String(), l.P90.String(), l.P99.String(), l.Max.String()}, buckets, answers,
	}
}

// round rounds to three places.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }
