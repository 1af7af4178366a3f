// Package top finds the heavy hitters: the counters whose descriptors are denied,
// asked for, or charged most, in the last minute and in bounded memory. It also remembers the
// last limit that requests brought along for a descriptor (overrides).
//
// For each of three orders (denied, hits, cost) it keeps Options.Keys counters by the
// algorithm Space-Saving (Metwally, Agrawal, El Abbadi 2005): a counter that is not kept
// takes the place of the lowest one and inherits its count, by which its own count may be too
// high at most. So no count is too low, and each counter with more than 1/Keys of all is
// kept.
//
// Counts leave in parts of five seconds. All of the last minute is counted, and up to
// five seconds before it: the hits of the part that leaves next are in the error of a row.
//
// Of more than 2,500 requests a second a random sample is looked at, and each request of
// the sample counts for the requests that were left out, too. So the cost stays below 1 %
// of a processor at any rate of requests. A count is an estimate then, which may also be too
// low, and its error has five standard deviations of the sample, too: of 1,000 rows at most
// one is too high by more than its error, whichever rows of 1,000 keys are shown.
package top

import (
	"hash/maphash"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"example.org/rls/internal/bounded"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
)

// Order is a measure that orders descriptors.
type Order int

// The orders.
const (
	Denied Order = iota // requests that the descriptor's limits denied
	Hits                // requests that asked for the descriptor
	Cost                // hits that they asked to charge
	orders
)

// names of the orders, as operators write them.
var names = [orders]string{"denied", "hits", "cost"}

const (
	// span is the length of the time that is counted, up to now.
	span = time.Minute
	// part is the length of a slot, whose counts are forgotten together.
	part = 5 * time.Second
	// slots are as many as span touches: one begins before it, and one is running.
	slots = int(span/part) + 1
	// looks is the number of requests a second of which all are looked at.
	looks = 2500
)

// Options configures a Top.
type Options struct {
	// Keys is the number of counters that are kept in each order, 1 to 1000. Each takes at
	// most 2 KiB. Of ten times as many descriptors the last override is remembered.
	Keys int
	// StoredKey is the name under which the store keeps a key.
	StoredKey func(string) string
	// Assigned returns the buckets of Envoys for a descriptor, and the hits per second that they
	// are assigned; nil says that there are none. It is called without the lock of the Top, because it may wait
	// for requests that wait for that lock in Observe.
	Assigned func(domain string, entries []descriptors.Entry) (buckets int64, perSecond float64)
	// Random draws the sample; nil is math/rand/v2.
	Random func() uint32
}

// Top counts descriptors. It is safe for concurrent use.
type Top struct {
	options Options
	sample  *bounded.Sample // of requests
	seed    maphash.Seed

	mu      sync.Mutex
	kept    [orders]summary
	nodes   map[uint64]*node            // by hash
	brought map[uint64]explain.Override // by hash; the last requests with these entries brought them
	totals  [orders]counts
	weights [slots]uint32 // the largest weight in each slot, also of requests left out
	start   time.Time
	slot    int64     // the number of the running slot since start
	renewed time.Time // the sample
}

var _ service.Observer = (*Top)(nil)

// New returns a Top that has seen nothing.
func New(o Options) *Top {
	t := &Top{
		options: o, sample: bounded.NewSample(looks, o.Random), seed: maphash.MakeSeed(), start: time.Now(),
		nodes: map[uint64]*node{}, brought: map[uint64]explain.Override{},
	}
	t.renewed = t.start
	for order := range t.kept {
		t.kept[order] = summary{order: Order(order), max: o.Keys}
	}
	return t
}

// Observe counts the descriptors of a request that have limits.
func (t *Top) Observe(o *service.Observation) {
	if len(o.Verdicts) == 0 {
		return
	}
	weight := t.sample.Weight()
	if weight == 0 {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	t.sample.Looked(weight)
	if took := now.Sub(t.renewed); took >= time.Second {
		t.sample.Renew(took.Seconds())
		t.renewed = now
	}
	t.weights[t.at()] = max(t.weights[t.at()], weight, t.sample.Largest())
	for verdicts := range o.ByDescriptor() {
		t.count(o.Domain, verdicts, int64(weight), now)
	}
}

// count counts one descriptor, whose limits have the verdicts.
func (t *Top) count(domain string, verdicts []service.Verdict, weight int64, now time.Time) {
	v := &verdicts[0]
	add := [orders]int64{Hits: weight, Cost: weight * int64(min(v.Hits, math.MaxInt32))}
	for i := range verdicts {
		if each := &verdicts[i]; each.Decided && !each.Watched {
			if decidesBefore(each, v) {
				v = each
			}
			if !each.Is.Allowed && !each.Shadow {
				add[Denied] = weight
			}
		}
	}
	shared := v.Shared()
	hash := t.hash(domain, v.Entries, shared)
	t.remember(domain, v, hash, now)
	n := t.nodes[hash]
	if n == nil {
		n = newNode(hash, domain, v, shared)
	}
	n.decidedBy(v, t.options.StoredKey)
	at := t.at()
	for order, w := range add {
		t.totals[order][at] += w
		n.counted[order][at] += w
	}
	n.bits[at] = max(n.bits[at], uint8(bits.Len64(uint64(add[Cost]))))
	for order, w := range add {
		if w == 0 {
			continue
		}
		// A node that n evicts is forgotten unless another order keeps it.
		if gone := t.kept[order].raise(n, at); gone != nil && !gone.kept() {
			delete(t.nodes, gone.hash)
		}
		t.nodes[hash] = n
	}
}

// decidesBefore reports whether v, which was decided, and not w is the limit that decided
// their descriptor.
func decidesBefore(v, w *service.Verdict) bool {
	if !w.Decided || v.Shadow != w.Shadow {
		return !w.Decided || w.Shadow // a limit that only watches decides nothing
	}
	return v.GoesBefore(w)
}

// hash identifies a counter: its domain and entries, with what [descriptors.Rule.Shared] has in
// place of values.
func (t *Top) hash(domain string, entries []descriptors.Entry, shared []descriptors.Naming) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	maphash.WriteComparable(&h, domain)
	for i, e := range entries {
		if naming := descriptors.NamingOf(shared, i); naming.Shared() {
			e.Value = ""
			_ = h.WriteByte('*') // a caller can send the text of the pattern
			maphash.WriteComparable(&h, *naming)
		} else {
			e.Value = naming.Mask.Of(e.Value)
		}
		maphash.WriteComparable(&h, e)
	}
	return h.Sum64()
}

// remember keeps the limit that the request of v brought along, or forgets that of an earlier
// request with the same entries. hash is that of the counter of v.
func (t *Top) remember(domain string, v *service.Verdict, hash uint64, now time.Time) {
	switch {
	case v.Override:
		if len(t.brought) >= 10*t.options.Keys {
			t.forgetOverrides()
		}
		l := v.Limit
		limit := service.Override{RequestsPerUnit: l.WrittenRequests, Unit: l.Unit, Multiplier: l.Multiplier}
		t.brought[hash] = explain.Override{Rate: limit, Seen: now}
	case len(t.brought) == 0:
	case v.Rule != nil && v.Rule.Shared != nil:
		delete(t.brought, t.hash(domain, v.Entries, nil))
	default:
		delete(t.brought, hash)
	}
}

// forgetOverrides forgets the older half of the overrides.
func (t *Top) forgetOverrides() {
	all := slices.SortedFunc(maps.Values(t.brought), func(a, b explain.Override) int { return a.Seen.Compare(b.Seen) })
	half := all[len(all)/2].Seen
	maps.DeleteFunc(t.brought, func(_ uint64, o explain.Override) bool { return !o.Seen.After(half) })
}

// Override is the limit that the last request with these entries that was looked at brought
// along, with its time in Seen; nil if it brought none, or if later ones of very many
// descriptors took its place.
func (t *Top) Override(domain string, entries []descriptors.Entry) *explain.Override {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o, known := t.brought[t.hash(domain, entries, nil)]; known {
		return &o
	}
	return nil
}

// at is the index of the running slot.
func (t *Top) at() int { return int(t.slot % int64(slots)) }

// oldest is the index of the slot that is forgotten next and begins before the last minute.
func (t *Top) oldest() int { return int((t.slot + 1) % int64(slots)) }

// advance empties the slots that have begun since the last call.
func (t *Top) advance(now time.Time) {
	slot := int64(now.Sub(t.start) / part)
	if slot <= t.slot {
		return
	}
	for range min(slot-t.slot, int64(slots)) {
		t.slot++
		at := t.at()
		t.weights[at] = t.sample.Largest()
		for order := range t.totals {
			t.totals[order][at] = 0
		}
		for _, n := range t.nodes {
			n.forget(at)
		}
	}
	t.slot = slot
	for order := range t.kept {
		t.kept[order].settle()
	}
	maps.DeleteFunc(t.nodes, func(_ uint64, n *node) bool { return !n.kept() })
}
