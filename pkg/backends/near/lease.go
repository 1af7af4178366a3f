package near

import "example.org/rls/pkg/backends"

const (
	// hot is how many operations on a key within one ttl make it a hot key.
	hot = 8
	// retryAfter is the ttl of hits that are only to be given back, in µs.
	retryAfter = 250_000
)

// lease is the hits of a cell that this process has charged and not used.
type lease struct {
	terms     backends.Lease // a Share of 0 if the hits are only to be given back
	op        backends.Op    // the operation on the cell that fetches and give-backs are made of
	held      int64          // hits that may be used
	ends      int64          // when unused hits are given back: one ttl after the last fetch, µs
	surplus   int64          // hits that nobody may use: they are given back at once
	wanted    int64          // hits that a worker is to fetch
	fetching  int64          // hits that are being charged
	returning int64          // hits that are being given back
	enough    int64          // while more hits than this are held, no fetch is due until check
	check     int64          // when the demand is compared anew, µs
	retry     int64          // no fetch begins before, µs: one had no answer, or the held hits caused a denial
	demand    demand
	trip      int64 // time of a fetch, smoothed, µs
}

// giveBack is the operation that gives back hits at now, to the counter that ends at until.
func (l *lease) giveBack(hits, now, until int64) backends.Op {
	op := l.op.Bare().At(now).Inverse(until)
	op.By = op.Unit.Times(hits, op.Den)
	return op
}

// out is how many hits are charged and not used: at most the share.
func (l *lease) out() int64 { return l.held + l.surplus + l.fetching + l.returning }

// yield has the held hits given back in the next sweep, and no hits fetched for a ttl.
func (l *lease) yield(now int64) {
	l.ends = min(l.ends, now)
	l.retry = now + l.terms.TTL
}

// ended reports whether the ttl of the held hits is over. The clock may have been set
// back.
func (l *lease) ended(now int64) bool { return l.ends <= now || l.ends > now+l.terms.TTL }

// due reports whether hits are to be given back.
func (l *lease) due(now int64) bool { return l.surplus > 0 || l.held > 0 && l.ended(now) }

// demand is the number of hits that callers ask for within one ttl.
type demand struct {
	last  int64 // hits in the ttl before
	count int64 // hits since the time below
	since int64 // µs
}

// add notes that hits were asked for.
func (d *demand) add(now, hits, ttl int64) {
	if age := now - d.since; age < 0 || age >= ttl { // below 0 if the clock was set back
		if d.last = d.count; age >= 2*ttl {
			d.last = 0
		}
		d.count, d.since = 0, now
	}
	d.count += hits
}

// expected is the number of hits that are expected within one ttl. A rise counts at once.
func (d *demand) expected() int64 { return max(d.last, d.count) }
