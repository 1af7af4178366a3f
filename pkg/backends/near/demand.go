package near

import "example.org/rls/pkg/backends"

// demand is the smoothed number of hits that callers ask for within one ttl.
type demand struct {
	perTTL int64
	count  int64 // hits since the time below
	since  int64 // µs
}

// maxCount keeps products of counts and times below 2^63.
const maxCount = 1 << 32

// add notes that hits were asked for.
func (d *demand) add(now, hits, ttl int64) {
	d.fold(now, ttl)
	d.count = min(d.count+hits, maxCount)
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
	measured := d.count * min(ttl, maxCount/4) / max(elapsed, 1)
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

// sketch finds the keys with many operations among any number of keys, in a
// fixed memory. Keys that share a slot take hits off each other, so that the
// more frequent one keeps the slot.
type sketch [64]slot

type slot struct {
	key   uint32 // a part of the key's hash
	count int32  // operations since the time below
	since int64  // µs
}

// hit notes an operation on the key with that hash, and reports whether the key
// has become hot. The key then leaves the sketch.
func (s *sketch) hit(hash uint32, op *backends.Op) bool {
	c := &s[hash%uint32(len(s))]
	if age := op.Now - c.since; c.count == 0 || age >= op.Lease.TTL || age < 0 {
		*c = slot{hash, 1, op.Now}
		return false
	}
	if c.key != hash {
		c.count--
		return false
	}
	if c.count++; c.count < hot {
		return false
	}
	*c = slot{}
	return true
}
