// Package presence tells an operator when a server of a store goes away and
// when it is back.
//
// It promises one line in the log when a server goes away and one when it is
// back, however many calls fail meanwhile, and a count of the servers that are
// away now. A Server costs one atomic load per answered call. The store decides
// how it treats calls to a server that is away.
package presence

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// steady is how long a server must have answered before it can go away again.
// It bounds the number of lines about a server that fails every other call.
const steady = time.Second

// Watch reports on the servers of one store. A nil Watch reports nothing.
type Watch struct {
	// Log gets a warning when a server goes away and an info when it is back.
	Log *slog.Logger
	// Role tells several stores of one process apart: main, per-second.
	Role string

	away atomic.Int64
}

// Away is the number of servers that are away now. It is safe for concurrent
// use.
func (w *Watch) Away() int { return int(w.away.Load()) }

// Server returns the state of the server with this address. The server counts as
// present until a call fails. The address must hold no credentials.
func (w *Watch) Server(address string) *Server {
	if w == nil {
		return nil
	}
	return &Server{watch: w, address: address}
}

// Server is one server of a store. Its methods are safe for concurrent use and
// do nothing on nil.
type Server struct {
	watch   *Watch
	address string
	away    atomic.Bool

	mu    sync.Mutex
	since time.Time // the last change; zero before the first
}

// Answered says that the server has answered.
func (s *Server) Answered() {
	if s != nil && s.away.Load() {
		s.returned("a server of the store is back")
	}
}

// Failed says that the server did not answer, or answered that it cannot
// serve. err must hold no credentials.
func (s *Server) Failed(err error) {
	if s == nil || s.away.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.away.Load() || now.Sub(s.since) < steady {
		return
	}
	s.since = now
	s.away.Store(true)
	s.watch.away.Add(1)
	s.log().Warn("a server of the store is away", "err", err)
}

// Left says that the server is no longer one of the store's.
func (s *Server) Left() {
	if s != nil && s.away.Load() {
		s.returned("a server that was away has left the store")
	}
}

func (s *Server) returned(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.away.Load() {
		return
	}
	now := time.Now()
	away := now.Sub(s.since)
	s.since = now
	s.away.Store(false)
	s.watch.away.Add(-1)
	s.log().Info(how, "away", away.Round(time.Millisecond))
}

func (s *Server) log() *slog.Logger {
	return s.watch.Log.With("server", s.address, "role", s.watch.Role)
}
