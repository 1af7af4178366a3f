package near

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

// Leases returns the counts of leases.
func (s *Store) Leases() (sum LeaseStats) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n := sh.leases
		n.Keys = uint64(sh.hot)
		for _, e := range sh.busy {
			if e.lease != nil {
				n.Held += uint64(e.lease.held())
			}
		}
		sh.mu.Unlock()
		sum = LeaseStats{
			sum.Leased + n.Leased, sum.Used + n.Used, sum.Returned + n.Returned, sum.Refilled + n.Refilled,
			sum.Lost + n.Lost, sum.Held + n.Held, sum.Keys + n.Keys,
		}
	}
	return sum
}

// Cache returns the counts of the memory of full cells.
func (s *Store) Cache() (sum CacheStats) {
	now := s.Now()
	oldest := now
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n := sh.cache
		for _, e := range sh.cells {
			if e.full {
				n.Entries++
				oldest = min(oldest, e.at)
			}
		}
		sh.mu.Unlock()
		sum = CacheStats{
			sum.Hits + n.Hits, sum.Misses + n.Misses, sum.Entries + n.Entries, sum.Evicted + n.Evicted,
			sum.Expired + n.Expired, sum.Overwritten + n.Overwritten, 0,
		}
	}
	if sum.Entries > 0 {
		sum.MeanTime = uint64((oldest+now)/2) / 1_000_000
	}
	return sum
}
