package near

import (
	"sync/atomic"

	"example.org/rls/pkg/backends"
)

// LeaseStats has the counts of leases since New, in hits.
type LeaseStats struct {
	Leased   uint64 // charged ahead
	Used     uint64 // taken from leases by callers
	Returned uint64 // given back
	Refilled uint64 // of meters: ended unused, because the bucket has refilled
	Lost     uint64 // ended unused with their window or by an error
	Held     uint64 // in leases now
	Keys     uint64 // hot keys now
}

// CacheStats has the counts of the memory of full cells since New.
type CacheStats struct {
	Hits, Misses uint64 // operations that memory has denied, and operations that it has not
	Entries      uint64 // full cells in memory now
	Evicted      uint64 // full cells that were removed because memory was full
	Expired      uint64 // look-ups that found a cell which had ended
	Overwritten  uint64 // cells that were replaced by a newer state
	// MeanTime estimates when the cells in memory were written, in seconds since
	// the epoch: the middle between the oldest of them and now; 0 without any.
	MeanTime uint64
}

// counters are the counts of both.
type counters struct {
	leased, returned, refilled, lost            atomic.Uint64
	hits, misses, evicted, expired, overwritten atomic.Uint64
}

// Leases returns the counts of leases.
func (s *Store) Leases() LeaseStats {
	stats := LeaseStats{
		Leased: s.count.leased.Load(), Returned: s.count.returned.Load(), Refilled: s.count.refilled.Load(),
		Lost: s.count.lost.Load(), Keys: uint64(s.hot.Load()),
	}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		stats.Used += sh.used
		for _, e := range sh.busy {
			if e.lease != nil {
				stats.Held += uint64(e.lease.held())
			}
		}
		sh.mu.Unlock()
	}
	return stats
}

// Cache returns the counts of the memory of full cells.
func (s *Store) Cache() CacheStats {
	stats := CacheStats{
		Hits: s.count.hits.Load(), Misses: s.count.misses.Load(), Evicted: s.count.evicted.Load(),
		Expired: s.count.expired.Load(), Overwritten: s.count.overwritten.Load(),
	}
	now := s.Now()
	oldest := now
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, e := range sh.cells {
			if e.full {
				stats.Entries++
				oldest = min(oldest, e.at)
			}
		}
		sh.mu.Unlock()
	}
	if stats.Entries > 0 {
		stats.MeanTime = uint64((oldest+now)/2) / 1_000_000
	}
	return stats
}

// countLookups counts the operations of b that memory has denied.
func (s *Store) countLookups(b *backends.Batch) {
	known := uint64(0)
	for i := range b.Replies {
		if b.Replies[i].Recalled {
			known++
		}
	}
	s.count.hits.Add(known)
	s.count.misses.Add(uint64(len(b.Ops)) - known)
}
