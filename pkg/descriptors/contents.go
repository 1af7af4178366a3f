package descriptors

import (
	"encoding/binary"
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

// Contents appends the fields of a descriptor n of d to b, or with a nil n the fields
// of d itself, without positions.
type Contents func(b []byte, d *Domain, n *Node) []byte

// Hash is the same for trees that hold the same rules in any order, wherever the
// rules were read from. Other trees have the same hash only by chance. A tree
// without domains has the hash 0.
func (t *Tree) Hash() uint64 {
	var sum uint64 // of the hashes of all parts, so that their order does not matter
	h := fnv.New64a()
	var part []byte
	var turn turns.Turns
	var add func(d *Domain, n *Node, above uint64)
	add = func(d *Domain, n *Node, above uint64) {
		turn.Next()
		part = t.contents(binary.BigEndian.AppendUint64(part[:0], above), d, n)
		h.Reset()
		_, _ = h.Write(part)
		own := h.Sum64()
		sum += own
		if n == nil {
			n = &d.root
		}
		n.each(func(child *Node) { add(d, child, own) })
	}
	for _, d := range t.Domains() {
		add(d, nil, 0)
	}
	return sum
}
