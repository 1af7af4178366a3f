package memcached

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	// maxRelative is the longest exptime in seconds, 30 days, that memcached
	// counts from now (REALTIME_MAXDELTA). A longer one is a Unix time, and an
	// item with a Unix time in the past is dropped at once.
	maxRelative = 30 * 24 * 60 * 60
	// tick is added because memcached's clock moves in whole seconds: an item
	// with an expiry of n lives between n-1 and n.
	tick = 1
	// gone is the exptime that removes an item.
	gone = -1
)

// expiration is the exptime with which memcached keeps an item for at least left
// µs from realNow, the time on memcached's clock. It is never 0, which would mean
// for ever. The protocol's Unix times end in January 2038; an item that would
// end later is kept until then.
func expiration(left int64, jitter time.Duration, realNow time.Time) int32 {
	left = min(max(left, 1), 1<<53)
	if jitter > 0 {
		left += rand.Int64N(jitter.Microseconds() + 1)
	}
	seconds := (left+999_999)/1_000_000 + tick
	if seconds <= maxRelative {
		return int32(seconds)
	}
	if at := realNow.Unix() + seconds; at <= math.MaxInt32 {
		return int32(at)
	}
	if realNow.Unix()+maxRelative < math.MaxInt32 {
		return math.MaxInt32
	}
	return maxRelative
}
