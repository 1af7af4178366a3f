package redis

import "sync/atomic"

// connections counts the connections of a store to its servers and sentinels.
type connections struct{ opened, closed atomic.Int64 }

// Connections returns how many connections to the servers and sentinels are open
// now, and how many were opened since Open.
func (s *Store) Connections() (open, opened int64) {
	closed := s.connections.closed.Load() // before opened, so that open is never negative
	opened = s.connections.opened.Load()
	return opened - closed, opened
}
