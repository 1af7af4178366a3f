package lease

import "sync/atomic"

// Stats has the counts of a Store since New, in hits.
type Stats struct {
	Leased   uint64 // charged ahead
	Used     uint64 // taken from leases by callers
	Returned uint64 // given back
	Refilled uint64 // of meters: ended unused, because the bucket has refilled
	Lost     uint64 // ended unused with their window or by an error
	Held     uint64 // in leases now
	Keys     uint64 // hot keys now
}

type counters struct{ leased, returned, refilled, lost atomic.Uint64 }

// Stats returns the counts.
func (s *Store) Stats() Stats {
	stats := Stats{
		Leased: s.count.leased.Load(), Returned: s.count.returned.Load(), Refilled: s.count.refilled.Load(),
		Lost: s.count.lost.Load(), Keys: uint64(s.keys.Load()),
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		stats.Used += sh.used
		for _, e := range sh.hot {
			stats.Held += uint64(e.held())
		}
		sh.mu.Unlock()
	}
	return stats
}
