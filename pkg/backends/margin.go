package backends

import (
	"context"
	"time"
)

// Margin is the part of a caller's remaining time that is kept for the answer's
// way back to the caller: a tenth of left, at least 1 ms and at most 50 ms. Envoy
// gives a request 20 ms by default.
func Margin(left time.Duration) time.Duration {
	return max(time.Millisecond, min(left/10, 50*time.Millisecond))
}

// Within is ctx if its deadline is within timeout, else a context that follows ctx and
// ends after timeout. The caller calls cancel as soon as it needs the context no longer.
func Within(ctx context.Context, timeout time.Duration) (within context.Context, cancel context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= timeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}

// Wait waits until done is closed or receives, or returns ctx's error if ctx ends first. If
// both have happened, the wait was not in vain.
func Wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-done:
		return nil
	default:
		return ctx.Err()
	}
}
