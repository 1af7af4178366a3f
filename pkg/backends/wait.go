package backends

import (
	"context"
	"sync/atomic"
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

// Pause waits for d, or returns ctx's error if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Nearby is the longest round trip to a server that is not distant.
const Nearby = 2 * time.Millisecond

// Pace spreads messages to a distant server over its round trip: no message waits for the answer
// to another one, and few are unanswered at a time. It is safe for concurrent use.
type Pace struct {
	Max   int           // messages that may be unanswered, at least 1
	Least time.Duration // the shortest time between two messages, above 0
	trip  atomic.Int64  // the last round trip
}

// Answered notes that an answer came after the time trip.
func (p *Pace) Answered(trip time.Duration) { p.trip.Store(int64(trip)) }

// Distant reports whether the last round trip was longer than Nearby.
func (p *Pace) Distant() bool { return time.Duration(p.trip.Load()) > Nearby }

// Between is the time between the last message and the next one, while so many are
// unanswered. At this pace Max messages fill the round trip. For each that the round trip
// does not explain, the time doubles, so that a silent server gets few.
func (p *Pace) Between(unanswered int) time.Duration {
	trip := time.Duration(p.trip.Load())
	between := max(p.Least, trip/time.Duration(p.Max))
	return between << max(0, unanswered-1-int(trip/between))
}
