package breaker

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// few bounds the calls and callers that together wait for a silent server.
	few = 50
	// ticks of the length Slow / ticksOfSlow without an answer make a server silent, or
	// more if a call usually takes longer than half of that time.
	ticks, ticksOfSlow = 5, 10
)

// silence notices that a server has stopped to answer before calls time out. It
// listens while more than few calls and callers wait.
//
// It counts ticks, not time, and at each tick lets goroutines that are ready to run go
// first. So a process that was stopped (CPU throttling), or has more to do than its
// processors can, reads the answers that have come before it counts on.
type silence struct {
	tick    time.Duration
	reason  error                         // for callers, while the server is silent
	usual   atomic.Int64                  // the usual duration of a call, in ns
	ended   atomic.Int64                  // calls that have ended
	callers atomic.Int64                  // callers that wait for the calls of others
	now     atomic.Bool                   // the server is silent
	begins  atomic.Pointer[chan struct{}] // closed when the next silence begins

	listening atomic.Bool // a timer calls heed at the next tick; the goroutine that sets it owns before and passed
	before    int64       // ended at the last tick
	passed    int         // ticks since a call has ended
}

func (s *silence) init(address string, slow time.Duration) {
	s.tick = slow / ticksOfSlow
	s.reason = fmt.Errorf("%w: %s: %w: the server is silent, and more than %d wait", backends.ErrUnavailable, address, ErrBusy, few)
	s.usual.Store(int64(slow / 2))
	s.begins.Store(new(make(chan struct{})))
}

// crowded returns an error if the server is silent and more than few wait. While it is
// not silent and more than few wait, crowded has the ticks run.
func (b *Breaker) crowded() error {
	switch {
	case b.waiting() <= few:
		return nil
	case b.now.Load():
		return b.reason
	}
	b.listen()
	return nil
}

// waiting is the number of calls and callers that wait for the server.
func (b *Breaker) waiting() int64 { return b.inFlight.Load() + b.callers.Load() }

// listen starts the ticks, unless they run.
func (b *Breaker) listen() {
	if s := &b.silence; !s.listening.Load() && s.listening.CompareAndSwap(false, true) {
		s.before, s.passed = s.ended.Load(), 0
		time.AfterFunc(s.tick, b.heed)
	}
}

// heed is called at each tick.
func (b *Breaker) heed() {
	runtime.Gosched()
	s := &b.silence
	waiting, ended := b.waiting(), s.ended.Load()
	if s.passed++; ended != s.before {
		s.before, s.passed = ended, 0
	}
	switch long := time.Duration(s.passed) * s.tick; {
	case waiting == 0:
		s.now.Store(false)
	case waiting > few && s.passed >= ticks && long >= 2*time.Duration(s.usual.Load()) && b.Away() == nil:
		if !s.now.Swap(true) {
			close(*s.begins.Swap(new(make(chan struct{}))))
		}
	}
	if waiting > few || s.now.Load() {
		time.AfterFunc(s.tick, b.heed)
		return
	}
	s.listening.Store(false)
	if b.waiting() > few { // callers that came meanwhile took this goroutine for the listener
		b.listen()
	}
}

// heard notes that the server has answered a call.
func (s *silence) heard(took time.Duration) {
	usual := s.usual.Load()
	s.usual.Store(usual + (int64(took)-usual)/8) // one of two at the same time may be lost
	s.speaks()
}

// speaks ends the silence.
func (s *silence) speaks() {
	if s.now.Load() {
		s.now.Store(false)
	}
}
