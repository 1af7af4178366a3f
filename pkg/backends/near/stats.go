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
