package algorithms

// leakyBucket fills by one per hit, leaks at requests per window and denies a hit
// that would raise it above burst. With MaxDelay it is a queue: hits above burst
// wait for their turn. The default burst is requests without MaxDelay, and 1 for a
// queue, so that a queue lets its hits out evenly.
var leakyBucket = onMeter("leaky_bucket", "lb", func(l *Limit) uint32 {
	if l.MaxDelay > 0 {
		return 1
	}
	return l.Requests
})
