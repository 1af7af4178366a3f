package pace_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/internal/pace"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		start := time.Now()
		var at []time.Duration
		for i := range pace.Every(ctx, time.Second) {
			if i != len(at) {
				t.Errorf("got %d, want %d", i, len(at))
			}
			at = append(at, time.Since(start))
		}
		if want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("at %v, want %v", at, want)
		}
		for range pace.Every(t.Context(), time.Second) {
			break
		}
	})
}
