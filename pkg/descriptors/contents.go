package descriptors

import (
	"fmt"
	"hash/fnv"

	"example.org/rls/pkg/turns"
)

// Each calls do for every rule, in no particular order.
func (t *Tree) Each(do func(*Domain, *Rule)) {
	for _, d := range t.Domains() {
		d.root.walk(func(r *Rule) { do(d, r) })
	}
}

// Rules is the number of rules.
func (t *Tree) Rules() (n int) {
	t.Each(func(*Domain, *Rule) { n++ })
	return n
}

// Hash is the same for trees that hold the same rules in any order, wherever
// the rules were read from. Other trees have the same hash only by chance. A
// tree without domains has the hash 0.
func (t *Tree) Hash() uint64 {
	var sum uint64 // of the hashes of all parts, so that their order does not matter
	h := fnv.New64a()
	var part []byte
	add := func() {
		h.Reset()
		_, _ = h.Write(part)
		sum += h.Sum64()
	}
	for _, d := range t.Domains() {
		part = fmt.Appendf(part[:0], "%q %s %s", d.Name, d.Charge, d.Default.OnError)
		add()
	}
	var turn turns.Turns
	t.Each(func(_ *Domain, r *Rule) {
		turn.Next()
		part = r.appendAll(part[:0])
		add()
	})
	return sum
}

// appendAll appends everything that a rule holds except its position.
func (r *Rule) appendAll(b []byte) []byte {
	b = fmt.Appendf(b, "%q %t %t %t %d %q %q", r.Path, r.Shadow, r.Quota, r.Unlimited, r.Requests, r.Name, r.Replaces)
	for i := range r.Limits {
		l := &r.Limits[i]
		b = fmt.Appendf(b, "%+v %d %d %d %s %q %q", l.Spec, l.Unit, l.Multiplier, l.WrittenBurst, l.OnError, l.Name, l.Replaces)
	}
	for _, n := range r.way {
		b = fmt.Appendf(b, "%q %t", n, n.ValueToMetric)
	}
	// fmt sorts the keys of a map.
	return fmt.Appendf(b, "%t %q %v", r.DetailedMetric, r.Shared, r.Metadata)
}
