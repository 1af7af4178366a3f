package load

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

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
