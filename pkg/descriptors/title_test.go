package descriptors_test

import (
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

func TestTitle(t *testing.T) {
	for _, tt := range []struct {
		name     string
		strategy algorithms.Strategy
		requests uint32
		window   time.Duration
		want     string
	}{
		{"", algorithms.FixedWindow, 20, 2 * time.Hour, "fixed_window 20 per 2 hours"},
		{"", algorithms.FixedWindow, 20, 120 * time.Minute, "fixed_window 20 per 2 hours"},
		{"", algorithms.TokenBucket, 1, time.Second, "token_bucket 1 per second"},
		{"", algorithms.GCRA, 0, 90 * time.Second, "gcra 0 per 90 seconds"},
		{"", algorithms.SlidingWindow, 100, 30 * 24 * time.Hour, "sliding_window 100 per 30 days"},
		{"per-day", algorithms.FixedWindow, 20, 24 * time.Hour, "per-day"},
	} {
		limit, err := algorithms.New(algorithms.Spec{Strategy: tt.strategy, Requests: tt.requests, Window: tt.window})
		if err != nil {
			t.Fatal(err)
		}
		if got := (&descriptors.Limit{Name: tt.name, Limit: limit}).Title(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
