package denycache

import "sync/atomic"

// Stats has the counts of a Store since New.
type Stats struct {
	Hits, Misses uint64 // operations that memory has answered, and operations that it has not
	Entries      uint64 // cells in memory now
	Evicted      uint64 // cells that were removed because memory was full
	Expired      uint64 // look-ups that found a cell which had ended
	Overwritten  uint64 // cells that were replaced by a newer state
	// MeanTime estimates when the cells in memory were written, in seconds since
	// the epoch: the middle between the oldest of them and now; 0 without any.
	MeanTime uint64
}

// counters are the counts of Stats.
type counters struct{ hits, misses, evicted, expired, overwritten atomic.Uint64 }

// Stats returns the counts.
func (s *Store) Stats() Stats {
	stats := Stats{
		Hits: s.count.hits.Load(), Misses: s.count.misses.Load(), Entries: uint64(s.full.Len()),
		Evicted: s.count.evicted.Load(), Expired: s.count.expired.Load(), Overwritten: s.count.overwritten.Load(),
	}
	if _, oldest, ok := s.full.GetOldest(); ok {
		stats.MeanTime = uint64((oldest.at+s.Now())/2) / 1_000_000
	}
	return stats
}

// add puts a cell into memory.
func (s *Store) add(name string, m memory) {
	if s.full.Contains(name) {
		s.count.overwritten.Add(1)
	}
	if s.full.Add(name, m) {
		s.count.evicted.Add(1)
	}
}
