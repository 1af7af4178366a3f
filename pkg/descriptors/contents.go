package descriptors

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"strconv"
)

// Each calls do for every rule, in no particular order.
func (t *Tree) Each(do func(*Domain, *Rule)) {
	for _, d := range t.Domains() {
		d.root.walk(func(r *Rule) { do(d, r) })
	}
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
		part = fmt.Appendf(part[:0], "%q %s", d.Name, d.Charge)
		add()
	}
	rules := 0
	t.Each(func(_ *Domain, r *Rule) {
		if rules++; rules%32 == 0 {
			runtime.Gosched() // requests go first, as when the rules are loaded
		}
		part = r.appendAll(part[:0])
		add()
	})
	return sum
}

// appendAll appends everything that a rule holds except its position.
func (r *Rule) appendAll(b []byte) []byte {
	b = fmt.Appendf(b, "%q %t %t %t %d", r.Path, r.Shadow, r.Quota, r.Unlimited, r.Requests)
	b = appendNames(b, r.Name, r.Replaces)
	for i := range r.Limits {
		l := &r.Limits[i]
		b = fmt.Appendf(b, "%+v %d %d %d", l.Spec, l.Unit, l.Multiplier, l.WrittenBurst)
		b = appendNames(b, l.Name, l.Replaces)
	}
	for _, n := range r.way {
		b = strconv.AppendBool(strconv.AppendBool(append(b, n.String()...), n.Descriptor.Shared), n.ValueToMetric)
	}
	b = fmt.Appendf(b, "%t %q", r.DetailedMetric, r.Shared)
	if r.Metadata != nil {
		b = fmt.Append(b, r.Metadata) // sorted by key
	}
	return b
}

func appendNames(b []byte, name string, replaces []string) []byte {
	b = append(append(b, name...), 0)
	for _, other := range replaces {
		b = append(append(b, other...), 0)
	}
	return append(b, 0)
}
