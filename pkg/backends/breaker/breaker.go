package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// onlyFailures is for how long calls must do nothing but fail before they open the
	// breaker whatever came earlier. A pipeline that breaks off fails many in a moment.
	onlyFailures = 100 * time.Millisecond
	// A breaker opens when failureRatio of the calls in the window have failed or were slow, if
	// there were minCalls at least. The window is a second, ten buckets.
	failureRatio = 0.5
	minCalls     = 5
	buckets      = 10
	bucketWidth  = time.Second / buckets
	// firstPause and longestPause bound the pause before a probe.
	firstPause   = 50 * time.Millisecond
	longestPause = 500 * time.Millisecond
	// lostProbe is the time after which a probe without an outcome is forgotten. A call
	// takes a second to connect and one to answer at most.
	lostProbe = 3 * time.Second
	// steady is how long a server must have answered before the log says again that
	// it is away, and before the pause starts again from firstPause.
	steady = time.Second
)

// Breaker stands before one server. Its methods are safe for concurrent use.
type Breaker struct {
	watch   *Watch
	address string
	log     *slog.Logger
	slow    time.Duration
	room    int64 // the calls that may be under way
	busy    error // the error of Allow when there is no room

	inFlight   atomic.Int64               // the calls that are under way
	generation atomic.Pointer[generation] // of now; never nil

	mu        sync.Mutex
	window    [buckets]bucket // the calls that ended since the breaker closed
	known     bool            // the server has answered once
	run       int             // calls that failed since the last success
	runBegan  time.Time       // when the first of them began
	pause     time.Duration   // the longest wait for the next probe
	wentAway  time.Time       // when the breaker opened after it was closed
	cameBack  time.Time       // when the breaker closed; zero before
	outage    Outage          // of the calls that fail now, or of the server that is away; else nil
	announced bool            // the log and the outage have been told that the server is away
	gone      bool            // the server has left the store
}

// generation is a time in which a breaker has one condition, and makes one probe at most.
// The outcome of a call counts in the generation in which the call was allowed, or not at
// all. A generation does not change.
type generation struct {
	condition Condition
	away      error     // the error of Allow; nil while closed
	probeAt   time.Time // when the next probe is allowed; zero while closed
}

// bucket counts the calls that ended in a tenth of the window.
type bucket struct {
	number        uint64 // of the tenth, since 1970
	calls, failed int
}

// Server returns the breaker of the server with this address. It is closed. The
// address is shown in logs and metrics and must hold no credentials.
func (w *Watch) Server(address string) *Breaker {
	b := &Breaker{
		watch: w, address: address,
		log:  cmp.Or(w.Log, slog.New(slog.DiscardHandler)).With("server", address, "role", w.Role),
		slow: w.SlowAfter(),
		room: int64(cmp.Or(w.MaxInFlight, defaultMaxInFlight)),
	}
	b.busy = fmt.Errorf("%w: %s: %w: more than %d", backends.ErrUnavailable, address, ErrBusy, b.room)
	b.generation.Store(&generation{condition: Closed})
	w.mu.Lock()
	w.servers = append(w.servers, b)
	w.mu.Unlock()
	return b
}

// probe begins the generation of a probe after g, in which the server is away. It returns
// nil if no probe is due, or if another caller has begun it.
func (b *Breaker) probe(g *generation) *generation {
	now := time.Now()
	if now.Before(g.probeAt) {
		return nil
	}
	next := &generation{HalfOpen, g.away, now.Add(lostProbe)}
	if !b.generation.CompareAndSwap(g, next) {
		return nil
	}
	return next
}

// ended notes the end of a call of this generation, whose condition was. The caller holds
// b.mu.
func (b *Breaker) ended(was Condition, took time.Duration, err error) {
	now := time.Now()
	if err == nil {
		b.known, b.run = true, 0
		if took > b.slow {
			err = fmt.Errorf("answered only after %v", took.Round(time.Millisecond))
		}
	} else if b.run++; b.run == 1 {
		b.runBegan = now.Add(-took)
	}
	tooMany := b.count(now, err != nil)
	switch {
	case err != nil:
		if b.outage == nil && b.watch.Failing != nil { // it may follow
			b.outage = b.watch.Failing(b.address)
		}
		if was == HalfOpen || tooMany {
			b.open(now, was, err)
		}
	case was == HalfOpen:
		b.close(now)
	default:
		b.outage = nil
	}
}

// count counts a call that ends now, and reports whether too many have failed.
func (b *Breaker) count(now time.Time, failed bool) bool {
	number := uint64(now.UnixNano() / int64(bucketWidth))
	newest := &b.window[number%buckets]
	if newest.number != number {
		*newest = bucket{number: number}
	}
	newest.calls++
	if failed {
		newest.failed++
	}
	var calls, failures int
	for i := range b.window {
		if at := &b.window[i]; number-at.number < buckets {
			calls += at.calls
			failures += at.failed
		}
	}
	dead := !b.known || b.run >= minCalls && now.Sub(b.runBegan) >= onlyFailures
	return dead || calls >= minCalls && float64(failures)/float64(calls) >= failureRatio
}

// open opens the breaker because of err, the last failure in the condition was.
func (b *Breaker) open(now time.Time, was Condition, err error) {
	b.pause = min(2*b.pause, longestPause)
	wasSteady := now.Sub(b.cameBack) >= steady
	if was == Closed {
		b.wentAway = now
		if wasSteady {
			b.pause = firstPause
		}
	}
	away := fmt.Errorf("%w: %s is away: %s", backends.ErrUnavailable, b.address, err.Error())
	b.generation.Store(&generation{Open, away, now.Add(b.pause/2 + rand.N(b.pause/2))})
	// The log has said so already unless the server was steady since.
	if !b.announced && !b.gone && wasSteady {
		b.announced = true
		b.log.Warn("a server of the store is away", "err", err)
		if b.outage != nil {
			b.outage.Away(b.wentAway, err)
		}
	}
}

// close closes the breaker, after a probe that succeeded.
func (b *Breaker) close(now time.Time) {
	clear(b.window[:])
	b.cameBack = now
	b.generation.Store(&generation{condition: Closed})
	b.recall(now, false)
}

// recall tells the end of the outage if it was announced.
func (b *Breaker) recall(now time.Time, left bool) {
	if b.announced {
		b.announced = false
		how := "a server of the store is back"
		if left {
			how = "a server that was away has left the store"
		}
		b.log.Warn(how, "away", now.Sub(b.wentAway).Round(time.Millisecond))
		if b.outage != nil {
			b.outage.Back(now, left)
		}
	}
	b.outage = nil
}

// Away is the error of Allow while the server is away, except for a probe, else nil.
func (b *Breaker) Away() error { return b.generation.Load().away }

// Left says that the server is no longer one of the store's. Calls that are under
// way may still end.
func (b *Breaker) Left() {
	w := b.watch
	w.mu.Lock()
	w.servers = slices.DeleteFunc(w.servers, func(s *Breaker) bool { return s == b })
	w.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.gone {
		b.gone = true
		b.recall(time.Now(), true)
	}
}

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
