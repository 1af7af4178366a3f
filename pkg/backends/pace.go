package backends

import (
	"sync/atomic"
	"time"
)

// Nearby is the longest round trip to a server that is not distant.
const Nearby = 2 * time.Millisecond

// Pace spreads messages to a distant server over its round trip: no message waits for the answer
// to another one, and few are unanswered at a time. It is safe for concurrent use.
type Pace struct {
	Max   int           // messages that may be unanswered, at least 1
	Least time.Duration // the shortest time between two messages, above 0
	trip  atomic.Int64  // the last round trip
}

// Answered notes that an answer came after the time trip.
func (p *Pace) Answered(trip time.Duration) { p.trip.Store(int64(trip)) }

// Distant reports whether the last round trip was longer than Nearby.
func (p *Pace) Distant() bool { return time.Duration(p.trip.Load()) > Nearby }

// Between is the time between the last message and the next one, while so many are
// unanswered. At this pace Max messages fill the round trip. For each that the round trip
// does not explain, the time doubles, so that a silent server gets few.
func (p *Pace) Between(unanswered int) time.Duration {
	trip := time.Duration(p.trip.Load())
	between := max(p.Least, trip/time.Duration(p.Max))
	return between << max(0, unanswered-1-int(trip/between))
}
