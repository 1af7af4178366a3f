package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/encoding/protojson"

	"example.org/rls/internal/load"
	"example.org/rls/internal/terminal"
)

// load sends many requests, the questions in turn, and prints a summary. Without --n
// and --duration each question is sent once, and the summary has the answers.
func (s *session) load(ctx context.Context) error {
	s.connect(ctx)
	o := load.Options{Requests: s.N, Duration: s.Duration, Rate: s.Rate, Concurrency: s.Concurrency}
	var answers []json.RawMessage
	if s.N == 0 && s.Duration == 0 {
		o.Requests = len(s.questions)
		answers = make([]json.RawMessage, len(s.questions))
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
		if o.Rate > 0 {
			o.Concurrency = 1024
		}
	}
	o.Send = func(ctx context.Context, i int) (bool, error) {
		resp, err := s.ask(ctx, s.questions[i%len(s.questions)].request)
		if err == nil && answers != nil {
			answers[i], err = protojson.Marshal(resp)
		}
		return resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT, err
	}
	l := load.New(o)
	stop := terminal.Progress(s.stderr, func() string {
		done, overLimit, failed := l.SoFar()
		return fmt.Sprintf("%d requests: %d OK, %d over the limit, %d failed", done, done-overLimit-failed, overLimit, failed)
	})
	sum := l.Run(ctx)
	stop()
	s.explain(&sum, o.Concurrency)
	write := writeSummary
	if s.Format == "json" {
		write = func(w io.Writer, sum *load.Summary) error { return writeSummaryJSON(w, sum, answers) }
	}
	if err := write(s.stdout, &sum); err != nil {
		return err
	}
	return result{failed: sum.Failed > 0, overLimit: sum.OverLimit > 0}.err()
}

// connect waits until the connection is made, or failed, so that the first request
// does not measure it.
func (s *session) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	s.conn.Connect()
	for {
		state := s.conn.GetState()
		if state == connectivity.Ready || state == connectivity.TransientFailure || !s.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// explain writes why requests failed, or were not sent, on the standard error.
func (s *session) explain(sum *load.Summary, concurrency int) {
	for _, failure := range sum.Errors {
		writeError(s.stderr, fmt.Errorf("ask %s: %d of %d requests failed: %w", s.Addr, failure.Count, sum.Requests(), failure.Err))
	}
	if sum.Unsent > 0 {
		writeError(s.stderr, fmt.Errorf("%d further requests were due and could not be sent, because %d were under way: "+
			"the service or this machine is too slow for the rate, or --concurrency is too low", sum.Unsent, concurrency))
	}
}

// writeSummary writes a summary for people.
func writeSummary(w io.Writer, sum *load.Summary) error {
	colors := terminal.ColorsFor(w)
	paint := func(color func(string) string, count int64, what string) string {
		text := fmt.Sprintf("%d %s", count, what)
		if count > 0 {
			text = color(text)
		}
		return text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests in %v, %s per second: %s, %s, %s\n", sum.Requests(), short(sum.Elapsed), perSecond(sum.Rate()),
		paint(colors.Green, sum.OK, "OK"), paint(colors.Yellow, sum.OverLimit, "over the limit"), paint(colors.Red, sum.Failed, "failed"))
	if l := &sum.Latency; len(l.Histogram) > 0 {
		fmt.Fprintf(&b, "latency: p50 %v, p90 %v, p99 %v, max %v\n", short(l.P50), short(l.P90), short(l.P99), short(l.Max))
		writeHistogram(&b, l.Histogram)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeHistogram writes a line with a bar for each bucket.
func writeHistogram(b *strings.Builder, buckets []load.Bucket) {
	const longest = 50 // columns
	var most int64
	for _, bucket := range buckets {
		most = max(most, bucket.Count)
	}
	for _, bucket := range buckets {
		line := fmt.Sprintf("  to %7v %8d  ", bucket.To, bucket.Count)
		columns := math.Ceil(longest * float64(bucket.Count) / float64(most))
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

// short rounds a duration to three digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// writeSummaryJSON writes a summary for programs.
func writeSummaryJSON(w io.Writer, sum *load.Summary, answers []json.RawMessage) error {
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
	l := &sum.Latency
	buckets := make([]bucket, len(l.Histogram))
	for i, b := range l.Histogram {
		buckets[i] = bucket{b.To.String(), b.Count}
	}
	return json.NewEncoder(w).Encode(struct {
		Requests  int64             `json:"requests"`
		OK        int64             `json:"ok"`
		OverLimit int64             `json:"over_limit"`
		Errors    int64             `json:"errors"`
		Seconds   float64           `json:"seconds"`
		Rate      float64           `json:"rate"`
		Latency   latency           `json:"latency"`
		Histogram []bucket          `json:"histogram"`
		Answers   []json.RawMessage `json:"answers,omitempty"` // null where a request failed
	}{
		sum.Requests(), sum.OK, sum.OverLimit, sum.Failed, round(sum.Elapsed.Seconds()), round(sum.Rate()),
		latency{l.P50.String(), l.P90.String(), l.P99.String(), l.Max.String()}, buckets, answers,
	})
}

// round rounds to three places.
func round(x float64) float64 { return math.Round(x*1000) / 1000 }
