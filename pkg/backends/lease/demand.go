package lease

// demand is the smoothed number of hits that callers ask for within one ttl.
type demand struct {
	perTTL int64
	count  int64 // hits since the time below
	since  int64 // µs
}

// most keeps products of counts and times below 2^63.
const most = 1 << 32

// add notes that hits were asked for.
func (d *demand) add(now, hits, ttl int64) {
	d.fold(now, ttl)
	d.count = min(d.count+hits, most)
}

// fold takes the count into the smoothed number when a quarter of a ttl is over.
// A rise counts at once, a fall by a quarter.
func (d *demand) fold(now, ttl int64) {
	elapsed := now - d.since
	switch {
	case elapsed < 0: // the clock was set back
		d.since = now
		return
	case elapsed < ttl/4:
		return
	}
	measured := d.count * min(ttl, most/4) / max(elapsed, 1)
	if measured > d.perTTL || elapsed >= 4*ttl {
		d.perTTL = measured
	} else {
		d.perTTL = (3*d.perTTL + measured) / 4
	}
	d.count, d.since = 0, now
}

// expected is the number of hits that are expected within one ttl. Within a
// quarter of a ttl a burst counts as soon as it exceeds the smoothed number.
func (d *demand) expected() int64 { return max(d.perTTL, d.count) }
