package near

import (
	"slices"

	"example.org/rls/pkg/backends"
)

const (
	// hot is how many operations on a key within one ttl make it a hot key.
	hot = 8
	// maxHot bounds the keys of a shard that are leased: 16,384 in all shards.
	maxHot = 256
	// maxPortions bounds the portions of a lease.
	maxPortions = 3
)

// lease is the hits of a cell that this process has charged and not used. The lock of
// its entry's shard guards it.
type lease struct {
	terms     backends.Lease // zero if the hits are only to be given back
	op        backends.Op    // the operation on the cell that fetches and give-backs are made of
	portions  []portion      // held hits, oldest first
	surplus   int64          // hits that nobody may use: they are given back at once
	wanted    int64          // hits that a worker is to fetch
	fetching  int64          // hits that are being charged
	returning int64          // hits that are being given back
	looking   bool           // a look before a give-back is under way
	// No background call begins before retry (µs): after one without an answer, and for
	// fetches after a denial that came from the lease's own hits.
	retry  int64
	demand demand
	trip   int64 // time of a fetch, smoothed, µs
}

// portion is hits that were charged together.
type portion struct {
	hits int64
	ends int64 // when unused hits are given back, µs
}

// fetch is the operation that charges n hits, or as many as fit. It charges them in at
// most 64 equal steps, which may leave out a few of the n.
func (l *lease) fetch(n int64) backends.Op {
	op, step := background(&l.op), (n+63)/64
	op.By, op.Times = op.Unit.Times(step, op.Den), n/step
	return op
}

// giveBack is the operation that gives back hits at now, to the counter that ends at until.
func (l *lease) giveBack(hits, now, until int64) backends.Op {
	op := background(&l.op)
	op = op.At(now).Inverse(until)
	op.By = op.Unit.Times(hits, op.Den)
	return op
}

// background is a charge of op's cell that is decided alone.
func background(op *backends.Op) backends.Op {
	b := *op
	b.Lease, b.Group, b.Role, b.IfUndecided = nil, 0, backends.Firm, backends.Open
	b.Refund, b.Undo, b.ChargeDenied, b.Times = false, false, false, 1
	return b
}

// ttl is how long hits are held, in µs, and how long before a background call that had
// no answer is made again.
func (l *lease) ttl() int64 {
	if l.terms.TTL == 0 {
		return 250_000
	}
	return l.terms.TTL
}

// held is how many hits the lease has.
func (l *lease) held() (n int64) {
	for i := range l.portions {
		n += l.portions[i].hits
	}
	return n
}

// out is how many hits are charged and not used: at most the share.
func (l *lease) out() int64 { return l.held() + l.surplus + l.fetching + l.returning }

// hold adds a portion. Hits beyond the last portion end with it.
func (l *lease) hold(hits, ends int64) {
	switch n := len(l.portions); {
	case hits == 0:
	case n == maxPortions:
		l.portions[n-1].hits += hits
	default:
		l.portions = append(l.portions, portion{hits, ends})
	}
}

// spend takes hits from the lease, oldest portions first, and returns hits. The lease
// has them.
func (l *lease) spend(hits int64) int64 {
	for left := hits; left > 0; {
		p := &l.portions[0]
		n := min(left, p.hits)
		left -= n
		if p.hits -= n; p.hits == 0 {
			l.portions = slices.Delete(l.portions, 0, 1)
		}
	}
	return hits
}

// yield has the held hits given back in the next sweep, and no hits fetched for a ttl.
func (l *lease) yield(now int64) {
	for i := range l.portions {
		l.portions[i].ends = min(l.portions[i].ends, now)
	}
	l.retry = now + l.ttl()
}

// due reports whether the ttl of the oldest hits is over. The clock may have been set
// back.
func (l *lease) due(now int64) bool {
	if l.looking || l.returning > 0 {
		return false
	}
	return l.surplus > 0 || len(l.portions) > 0 && (l.portions[0].ends <= now || l.portions[0].ends > now+l.ttl())
}

// expire takes the hits that are to be given back by now out of the lease.
func (l *lease) expire(now int64) (hits int64) {
	hits, l.surplus = l.surplus, 0
	for len(l.portions) > 0 && (l.portions[0].ends <= now || l.portions[0].ends > now+l.ttl()) {
		hits += l.spend(l.portions[0].hits)
	}
	return hits
}

// failed reports whether a background call had no answer.
func (l *lease) failed(err error, now int64) bool {
	if err != nil {
		l.retry = now + l.ttl()
	}
	return err != nil
}

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
