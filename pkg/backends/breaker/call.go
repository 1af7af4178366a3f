package breaker

import (
	"context"
	"errors"
	"time"

	"example.org/rls/pkg/backends"
)

var (
	// ErrBusy is wrapped by the errors of calls for which there is no room, because too
	// many are under way. It does not say that the server is away.
	ErrBusy = errors.New("too many calls are under way")
	// ErrNotMade is the end of a call that was allowed and not made. A probe must be made,
	// unless the store is closed.
	ErrNotMade = errors.New("the call was not made")
)

// probeWait is the longest wait of the caller of a probe, which goes on. Without this bound
// each caller of a hot key would wait for the probe of that key.
const probeWait = 50 * time.Millisecond

// Call is the permission to wait for the answer to a call.
type Call struct {
	b          *Breaker
	generation *generation // in which it was allowed
	Probe      bool        // the server is away, and the call tries it
}

// Allow asks to make a call. If it returns no error, the caller makes the call, may
// wait for it with Wait, and reports its end with Done. Else it must not make the call:
// the server is away, or too many calls are under way to it. The error wraps
// backends.ErrUnavailable, and of a server that is away has the text of the last failure.
func (b *Breaker) Allow() (Call, error) {
	if b.inFlight.Add(1) > b.room {
		b.inFlight.Add(-1)
		return Call{}, b.busy
	}
	g := b.generation.Load()
	if g.condition == Closed {
		return Call{b, g, false}, nil
	}
	if probe := b.probe(g); probe != nil {
		return Call{b, probe, true}, nil
	}
	b.inFlight.Add(-1)
	return Call{}, g.away
}

// Wait waits until done is closed or receives. It returns an error if ctx ends first. The
// caller of a probe waits for 50 ms at most. The call goes on.
func (c Call) Wait(ctx context.Context, done <-chan struct{}) error {
	if c.Probe {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, probeWait)
		defer cancel()
	}
	return backends.Wait(ctx, done)
}

// Done reports the end of the call, once. took is the time between the sending of the
// call and its end. err is nil if the server has answered, also if the answer is an error
// that does not come from a fault of the server; or else ErrNotMade, or a failure, whose
// text must hold no credentials.
func (c Call) Done(took time.Duration, err error) {
	b := c.b
	b.inFlight.Add(-1)
	if errors.Is(err, ErrNotMade) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.generation.Load() == c.generation {
		b.ended(c.generation.condition, took, err)
	}
}
