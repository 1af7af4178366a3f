package status

import (
	"math/bits"
	"time"
)

// Durations are counted in buckets: 8 for each power of two, from 1 µs (2^10 ns) to
// 17 s (2^34 ns). A percentile is the middle of its bucket, so it is at most 6 % off.
const (
	lowest  = 10 // the power of two, in ns, at which the second bucket begins
	octaves = 24
	parts   = 8 // per octave
	buckets = octaves*parts + 1
)

// bucketOf is the bucket that counts a duration. The first also counts shorter
// durations, and the last longer ones.
func bucketOf(d time.Duration) int {
	ns := uint64(max(d, 0))
	power := bits.Len64(ns) - 1
	if power < lowest {
		return 0
	}
	part := int(ns>>(power-3)) & (parts - 1)
	return min((power-lowest)*parts+part+1, buckets-1)
}

// middle is the duration that stands for a bucket.
func middle(bucket int) time.Duration {
	if bucket == 0 {
		return 1 << (lowest - 1)
	}
	power, part := (bucket-1)/parts+lowest, (bucket-1)%parts
	return time.Duration(2*(parts+part)+1) << (power - 4)
}

// durations counts requests by how long they took.
type durations [buckets]uint32

func (d *durations) add(other *durations) {
	for i, n := range other {
		d[i] += n
	}
}

// percentile is the duration that the share q of the requests did not exceed, and 0
// without requests.
func (d *durations) percentile(q float64) time.Duration {
	var all uint64
	for _, n := range d {
		all += uint64(n)
	}
	if all == 0 {
		return 0
	}
	rank := uint64(q * float64(all-1))
	for i, n := range d {
		if rank < uint64(n) {
			return middle(i)
		}
		rank -= uint64(n)
	}
	return middle(buckets - 1)
}
