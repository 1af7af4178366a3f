package breaker

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"example.org/rls/pkg/backends"
)

const (
	// onlyFailures is for how long calls must do nothing but fail before they open the
	// breaker whatever came earlier. A pipeline that breaks off fails many in a moment.
	onlyFailures = 100 * time.Millisecond
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

	// circuit counts failures in the window, and gives the permit for a probe. Its pause
	// before a probe could not grow.
	circuit  circuitbreaker.CircuitBreaker[any]
	minCalls int

	room     int64        // the calls that may be under way
	busy     error        // the error of Allow when there is no room
	inFlight atomic.Int64 // the calls that are under way

	known   atomic.Bool           // the server has answered once
	failing atomic.Bool           // the last call failed
	away    atomic.Pointer[error] // the error of Allow while the circuit is not closed; else nil

	mu        sync.Mutex
	cause     error         // why the last call failed
	run       int           // calls that failed since the last success
	runBegan  time.Time     // when the first of them began
	pause     time.Duration // the longest wait for the next probe
	opened    time.Time     // the last time the circuit opened
	probeAt   time.Time     // when the next probe is allowed
	wentAway  time.Time     // when the circuit opened after it was closed
	cameBack  time.Time     // when the circuit closed; zero before
	outage    Outage        // of the calls that fail now, or of the server that is away; else nil
	announced bool          // the log and the outage have been told that the server is away
	gone      bool          // the server has left the store
}

func newBreaker(w *Watch, address string) *Breaker {
	b := &Breaker{
		watch: w, address: address,
		log:  cmp.Or(w.Log, slog.New(slog.DiscardHandler)).With("server", address, "role", w.Role),
		slow: w.SlowAfter(), minCalls: cmp.Or(w.MinCalls, DefaultMinCalls),
		room: int64(cmp.Or(w.MaxInFlight, DefaultMaxInFlight)),
	}
	b.busy = fmt.Errorf("%w: %s: %w: more than %d", backends.ErrUnavailable, address, ErrBusy, b.room)
	b.circuit = circuitbreaker.NewBuilder[any]().
		WithFailureRateThreshold(cmp.Or(w.FailureRatio, DefaultFailureRatio), uint(b.minCalls), cmp.Or(w.Window, DefaultWindow)).
		WithSuccessThreshold(1).
		WithDelay(0).
		OnStateChanged(b.changed).
		Build()
	return b
}

// probes reports whether the next call may probe a server that is away. From then on no
// other call may, until circuit has told the outcome to changed, a moment after it has
// opened: a call that began in that moment would look as if it had begun before.
func (b *Breaker) probes() bool {
	now := time.Now()
	b.mu.Lock()
	due := !now.Before(b.probeAt)
	if due {
		b.probeAt = now.Add(lostProbe)
	}
	b.mu.Unlock()
	if !due {
		return false
	}
	if b.circuit.TryAcquirePermit() {
		return true
	}
	b.circuit.Open() // the last probe was never Done
	return b.circuit.TryAcquirePermit()
}

// answered notes that the server is not dead.
func (b *Breaker) answered() {
	if !b.known.Load() {
		b.known.Store(true)
	}
	if b.failing.Load() {
		b.mu.Lock()
		b.run = 0
		b.failing.Store(false)
		if b.away.Load() == nil {
			b.outage = nil
		}
		b.mu.Unlock()
	}
}

func (b *Breaker) failed(took time.Duration, err error) {
	now := time.Now()
	b.mu.Lock()
	b.cause = err
	if b.run == 0 {
		b.runBegan = now.Add(-took)
		b.failing.Store(true)
		b.fails()
	}
	b.run++
	dead := !b.known.Load() || b.run >= b.minCalls && now.Sub(b.runBegan) >= onlyFailures
	b.mu.Unlock()
	if b.circuit.RecordFailure(); dead {
		b.circuit.Open()
	}
}

// fails makes the outage that may follow. The caller holds b.mu.
func (b *Breaker) fails() {
	if b.outage == nil && b.watch.Failing != nil {
		b.outage = b.watch.Failing(b.address)
	}
}

// late reports whether a call that ends now and had the duration took began before
// the circuit opened. Such a call is not a probe.
func (b *Breaker) late(took time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.opened) < took
}

// changed is called by circuit after each change of its state.
func (b *Breaker) changed(to circuitbreaker.StateChangedEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch to.NewState {
	case circuitbreaker.OpenState:
		if to.OldState == circuitbreaker.ClosedState {
			b.wentAway = now
			b.fails()
		}
		if b.pause *= 2; b.pause == 0 || now.Sub(b.cameBack) >= steady && to.OldState == circuitbreaker.ClosedState {
			b.pause = firstPause
		}
		b.pause = min(b.pause, longestPause)
		b.opened = now
		b.probeAt = now.Add(b.pause/2 + rand.N(b.pause/2))
		b.away.Store(new(fmt.Errorf("%w: %s is away: %s", backends.ErrUnavailable, b.address, b.cause.Error())))
		// The log has said so already unless the server was steady since.
		if !b.announced && !b.gone && now.Sub(b.cameBack) >= steady {
			b.announced = true
			b.log.Warn("a server of the store is away", "err", b.cause)
			if b.outage != nil {
				b.outage.Away(b.wentAway, b.cause)
			}
		}
	case circuitbreaker.ClosedState:
		b.cameBack = now
		b.away.Store(nil)
		b.recall(now, false)
	}
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
func (b *Breaker) Away() error {
	if away := b.away.Load(); away != nil {
		return *away
	}
	return nil
}

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

var conditions = [...]Condition{
	circuitbreaker.ClosedState: Closed, circuitbreaker.HalfOpenState: HalfOpen, circuitbreaker.OpenState: Open,
}
