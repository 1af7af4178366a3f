package descriptors

import (
	"fmt"
	"hash/fnv"
	"strconv"
)

// Each calls do for every rule, in no particular order.
func (t *Tree) Each(do func(*Domain, *Rule)) {
	for _, d := range t.Domains() {
		d.root.walk(func(r *Rule) { do(d, r) })
	}
}

// Hash is equal for trees that hold the same rules in any order, wherever they
// were read from, and for no other trees but by chance. A tree without domains
// has the hash 0.
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
	t.Each(func(_ *Domain, r *Rule) {
		part = r.appendAll(part[:0])
		add()
	})
	return sum
}

// appendAll appends all that a rule says, without the place where it says so.
func (r *Rule) appendAll(b []byte) []byte {
	for _, line := range r.dump() {
		b = append(b, line...)
	}
	b = appendNames(b, r.Name, r.Replaces)
	for i := range r.Limits {
		b = appendNames(b, r.Limits[i].Name, r.Limits[i].Replaces)
	}
	for i := range r.levels {
		l := &r.levels[i]
		b = strconv.AppendBool(strconv.AppendBool(append(b, l.pattern...), l.shared), l.valueInKey)
	}
	b = strconv.AppendBool(b, r.detailed)
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
