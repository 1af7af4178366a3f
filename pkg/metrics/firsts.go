package metrics

import (
	"hash/maphash"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/service"
)

// limited tells the counters of one caller apart by their limits, and callers by their hash.
// At is that of a threshold of the limit, or 0.
type limited struct {
	caller   uint64
	name     string
	strategy algorithms.Strategy
	requests uint32
	window   time.Duration
	at       algorithms.Percent
}

// firsts remembers which counters had a line, so that each has one in a while.
type firsts struct {
	seed maphash.Seed
	mu   sync.Mutex
	// until has the times in µs before which counters have no other line, by the hash of their
	// limited. before has those of the counters before these.
	until, before map[uint64]int64
	minute        int64 // when the minute of lines began, in µs
	lines         int
}

const (
	maxLogged     = 10_000  // lines in a minute
	maxRemembered = 100_000 // counters in each map, in about 5 MiB
)

func newFirsts() *firsts { return &firsts{seed: maphash.MakeSeed(), until: map[uint64]int64{}} }

// first reports whether the counter of v has a line now, and then has no other one for the
// time of quiet. Lines of a clock that has been set back since do not count. Beyond
// 2 × maxRemembered counters the older half is forgotten, and may have a line twice.
func (f *firsts) first(o *service.Observation, v *service.Verdict, at algorithms.Percent, quiet time.Duration) bool {
	const minute = int64(time.Minute / time.Microsecond)
	var room [256]byte
	l := v.Limit
	longest := quiet // until a counter has its next line
	if at > 0 {
		longest = max(quiet, l.Window) // a month of the calendar may be longer than its Window
	}
	hash := maphash.Comparable(f.seed, limited{maphash.Bytes(f.seed, callerOf(room[:0], o.Domain, v)), l.Name, l.Strategy, l.Requests, l.Window, at})
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.At >= f.minute+minute || o.At < f.minute-minute {
		f.minute, f.lines = o.At, 0
	}
	until, known := f.until[hash]
	if !known {
		until = f.before[hash]
	}
	if o.At < until && until-o.At <= longest.Microseconds() || f.lines >= maxLogged {
		return false
	}
	if len(f.until) >= maxRemembered {
		f.until, f.before = map[uint64]int64{}, f.until
	}
	f.until[hash] = o.At + quiet.Microseconds()
	f.lines++
	return true
}
