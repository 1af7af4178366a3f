// Package breaker keeps calls away from a server that does not answer, and tells
// an operator about it.
//
// A [Breaker] stands before each server of a store. It promises:
//
//   - A call to a server that fails is refused at once, until a probe succeeds.
//     The breaker opens when a given part of the calls of the last second has failed or
//     was slow, when nothing but failures came for 100 ms, and at the first
//     failure of a server that has never answered.
//   - While it is open, one call at a time probes the server, after a pause that
//     grows from 50 to 500 ms and has jitter. One success closes the breaker.
//   - At most a given number of calls are under way to the server; more are refused
//     at once.
//   - The log has one line when a server goes away and one when it is back, at most
//     two a second.
//
// The store asks [Breaker.Allow] before each call, has its callers wait with [Call.Wait],
// reports each end to [Call.Done], and decides what counts as a failure.
package breaker

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Defaults of a Watch.
const (
	defaultMaxInFlight = 1024
	DefaultSlow        = 150 * time.Millisecond
)

// Watch makes the breakers of one store's servers, and knows their states. It is safe for
// concurrent use; its fields must not be changed after the first call of Server.
type Watch struct {
	// Log gets a warning when a server goes away and another when it is back; nil
	// logs nothing.
	Log *slog.Logger
	// Role tells several stores of one process apart: main, per-second.
	Role string
	// MaxInFlight bounds the calls that are under way to one server; 0 is 1,024.
	MaxInFlight int
	// Slow is the longest time of a call that does not count as failed; 0 is 150 ms.
	Slow time.Duration
	// Failing, if not nil, is called when calls to a server begin to fail or to be slow,
	// before their callers know. If the server goes away, the Outage is told; else it is dropped. The
	// function and its Outages must neither block nor call the breaker.
	Failing func(address string) Outage

	mu      sync.Mutex
	servers []*Breaker
}

// Outage is told about a time in which a server is away, when the log is. A server that
// comes back for less than a second goes on being away to neither of them: it is told
// again only if it is away a second later.
type Outage interface {
	// Away says that the server went away at a time because of err.
	Away(at time.Time, err error)
	// Back says, after Away, that the server answers again, or that it has left the store.
	Back(at time.Time, left bool)
}

// SlowAfter is Slow with its default.
func (w *Watch) SlowAfter() time.Duration { return cmp.Or(w.Slow, DefaultSlow) }

// Condition is the state of a breaker.
type Condition int

const (
	Closed   Condition = iota // lets calls pass
	HalfOpen                  // waits for the outcome of a probe
	Open                      // refuses calls
)

// State is the state of the breaker of one server.
type State struct {
	Address   string
	Condition Condition
}

// States returns the states of all servers, sorted by address, with one entry for each
// address.
func (w *Watch) States() []State {
	w.mu.Lock()
	states := make([]State, len(w.servers))
	for i, b := range w.servers {
		states[i] = State{b.address, b.generation.Load().condition}
	}
	w.mu.Unlock()
	slices.SortFunc(states, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(b.Condition, a.Condition))
	})
	return slices.CompactFunc(states, func(a, b State) bool { return a.Address == b.Address })
}

// Away is the number of servers whose breakers are not closed.
func (w *Watch) Away() (n int) {
	for _, s := range w.States() {
		if s.Condition != Closed {
			n++
		}
	}
	return n
}
