package simulation_test

import (
	"context"
	"slices"

	"example.org/rls/pkg/backends"
	"example.org/rls/test/backendtest"
)

// state is how a server treats what arrives.
type state int

const (
	up state = iota
	down
	frozen
)

// A server is a Redis: the definition of a store, whose keys expire by the
// server's clock, with a replica that is behind.
type server struct {
	*world
	state   state
	clock   int64 // ahead of the true time, µs
	stepped int64 // how far it was set, in all
	cells   *backendtest.Model
	expires map[string]int64 // by the server's clock

	behind  []change // not yet at the replica
	replica *server
	held    []func() // arrived while frozen

	// era counts the events after which cells are not what they were: a restart, a
	// failover, a clock that was set. quiet is the time from which it is in force
	// everywhere.
	era    int
	quiet  int64
	faults int    // that have begun
	back   int64  // when the last one ended
	ends   func() // is called then
	// check is told how long the key of an operation lives from at, the server's time.
	check func(op *backends.Op, at, life int64)
}

// change is a batch that the replica will apply.
type change struct {
	now int64
	ops []backends.Op
	all bool
}

func newServer(w *world) *server {
	return &server{world: w, cells: backendtest.NewModel(), expires: map[string]int64{}}
}

// apply applies a batch at the server's time, and checks that each key has an
// expiry.
func (s *server) apply(b *backends.Batch, at int64) {
	s.expire(at)
	_ = s.cells.Apply(context.Background(), b) // it never fails
	for i := range b.Ops {
		op, r := &b.Ops[i], &b.Replies[i]
		if op.ReadOnly() {
			continue
		}
		life := r.Until - op.Now + backends.Skew
		if op.Kind == backends.Counter && op.Span == backends.Fixed {
			life = op.Until - op.Now + backends.Skew
		}
		s.expires[op.Key] = at + life
		if s.check != nil {
			s.check(op, at, life)
		}
	}
}

// expire removes the keys whose time is over.
func (s *server) expire(at int64) {
	for key, end := range s.expires {
		if end <= at {
			s.cells.Drop(key)
			delete(s.expires, key)
		}
	}
}

// peek is the value of a counter.
func (s *server) peek(op backends.Op) int64 {
	s.expire(s.now + s.clock)
	b := &backends.Batch{Ops: []backends.Op{op.Look()}, Replies: make([]backends.Reply, 1)}
	_ = s.cells.Apply(context.Background(), b) // it never fails
	return b.Replies[0].Value.Whole
}

// receive applies b and returns it with its replies. The replica gets it later.
func (s *server) receive(ops []backends.Op, all bool) *backends.Batch {
	b := &backends.Batch{Ops: slices.Clone(ops), Replies: make([]backends.Reply, len(ops)), AllOrNothing: all}
	now := s.now + s.clock
	s.apply(b, now)
	if s.replica != nil {
		s.behind = append(s.behind, change{now, ops, all})
	}
	return b
}

// replicate sends the oldest changes, all but the last keep.
func (s *server) replicate(keep int) {
	for len(s.behind) > keep {
		c := s.behind[0]
		s.behind = s.behind[1:]
		b := &backends.Batch{Ops: slices.Clone(c.ops), Replies: make([]backends.Reply, len(c.ops)), AllOrNothing: c.all}
		s.replica.apply(b, c.now)
	}
}

// newEra says that cells are not what they were. Until settled µs from now some
// processes do not know.
func (s *server) newEra(settled int64) {
	s.era++
	s.quiet = max(s.quiet, s.now+settled)
}

// restart loses every cell.
func (s *server) restart() {
	s.say("server: restarts, empty")
	s.cells, s.expires = backendtest.NewModel(), map[string]int64{}
	if s.replica != nil {
		s.replica.cells, s.replica.expires, s.behind = backendtest.NewModel(), map[string]int64{}, nil
	}
	s.newEra(0)
}

// failover promotes the replica, which does not have the last changes.
func (s *server) failover() {
	s.say("server: its replica is promoted, %d calls behind", len(s.behind))
	s.cells, s.expires = s.replica.cells, s.replica.expires
	s.behind = nil
	s.replica = nil
	s.newEra(0)
}

// step sets the server's clock. Processes follow within some seconds.
func (s *server) step(us int64) {
	s.say("server: its clock is set by %d ms", us/1000)
	s.clock += us
	s.stepped += max(us, -us)
	s.newEra(clockEvery + 1_000_000)
}

// fault has the server in another state for some time.
func (s *server) fault(to state, us int64) {
	if s.state != up {
		return
	}
	s.say("server: %s for %d ms", [...]string{"", "away", "frozen"}[to], us/1000)
	s.state = to
	s.faults++
	begin := s.now
	s.after(us, func() {
		s.say("server: back")
		s.state = up
		s.back = s.now
		if len(s.held) > 0 && us > backends.Skew {
			// Calls from before the fault are older than operations may be.
			s.newEra(0)
		}
		for _, do := range s.held {
			do()
		}
		s.held = nil
		if s.quiet > begin { // processes have not heard of the server's new clock
			s.quiet = max(s.quiet, s.now+clockEvery+1_000_000)
		}
		s.ends()
	})
}
