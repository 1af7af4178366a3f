package match

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"sort"
)

// networks finds the longest of many networks that has an address, one of IPv4 in [0] and of
// IPv6 in [1].
type networks [2]ranges

// ranges are the addresses of a family, cut where another network becomes the longest one. They
// are found by a trie whose branches are as wide as the ranges below them are many, so that a
// look-up waits for memory about three times, however the networks are distributed.
type ranges struct {
	starts []start  // in ascending order; the first is the lowest address
	index  []branch // of all nodes of the trie
	root   branch
}

// start is the first address of a range, and the longest network there.
type start struct {
	address
	owner int32
	bits  int16 // of the network; -1 if there is none
}

// address has the bits of an address from the highest one on.
type address struct{ hi, lo uint64 }

// network is a network of a descriptor.
type network struct {
	netip.Prefix
	owner int32
}

// newNetworks sorts the networks, each of which stands in the list once.
func newNetworks(list []network) *networks {
	slices.SortFunc(list, func(a, b network) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	six := slices.IndexFunc(list, func(n network) bool { return n.Addr().Is6() })
	if six < 0 {
		six = len(list)
	}
	return &networks{newRanges(list[:six]), newRanges(list[six:])}
}

// newRanges cuts the addresses of a family by networks in the order of their addresses, of
// which the larger ones come first.
func newRanges(list []network) (r ranges) {
	r.starts = []start{{bits: -1}}
	r.fill(network{}, list)
	r.starts = slices.Clip(r.starts)
	r.root = r.branches(0, len(r.starts), 0)
	r.index = slices.Clip(r.index)
	return r
}

// fill cuts the addresses of a network, of all without one, by the networks in it, with which
// the list begins. It returns the rest of the list.
func (r *ranges) fill(around network, list []network) (rest []network) {
	for len(list) > 0 && (!around.IsValid() || around.Contains(list[0].Addr())) {
		n, at := list[0], bitsOf(list[0].Addr())
		r.cut(at, n)
		list = r.fill(n, list[1:])
		if end, more := at.after(n.Bits()); more {
			r.cut(end, around)
		}
	}
	return list
}

// cut begins a range, whose longest network is that one.
func (r *ranges) cut(at address, longest network) {
	next := start{at, longest.owner, int16(longest.Bits())}
	if last := &r.starts[len(r.starts)-1]; last.address == at {
		*last = next
	} else {
		r.starts = append(r.starts, next)
	}
}

// find returns the owner and the bits of the longest network that has an address; negative
// bits if none has it.
func (n *networks) find(a netip.Addr) (owner int32, bits int16) {
	r := &n[0]
	if a.Is6() {
		r = &n[1]
	}
	at := bitsOf(a)
	b := r.root
	for b.width() > 0 {
		b = r.index[b.first()+at.slot(b.at(), b.width())]
	}
	i := b.first()
	for _, s := range r.starts[i : i+b.at()] {
		i += 1 - s.above(at)
	}
	s := &r.starts[i-1]
	return s.owner, s.bits
}

// some reports whether an address of a network is in one of n, or in none.
func (n *networks) some(network netip.Prefix, in bool) bool {
	if _, bits := n.find(network.Addr()); bits >= 0 == in {
		return true
	}
	r := &n[0]
	if network.Addr().Is6() {
		r = &n[1]
	}
	first := bitsOf(network.Addr())
	end, more := first.after(network.Bits())
	i := sort.Search(len(r.starts), func(i int) bool { return r.starts[i].above(first) == 1 })
	for ; i < len(r.starts) && (!more || end.above(r.starts[i].address) == 1); i++ {
		if r.starts[i].bits >= 0 == in {
			return true
		}
	}
	return false
}

// branch is a node of the trie: one for each value of some bits of addresses, from the bit at
// on, or a leaf without bits, of so many ranges. The nodes or ranges stand together; first is
// the index of the first one.
type branch uint64

func newBranch(first, at, width int) branch {
	return branch(uint64(first)<<16 | uint64(at)<<8 | uint64(width))
}

func (b branch) first() int { return int(b >> 16) }
func (b branch) at() int    { return int(b >> 8 & 0xff) }
func (b branch) width() int { return int(b & 0xff) }

// branches makes the node of the ranges from first to end, whose addresses have the same bits
// before the bit at.
func (r *ranges) branches(first, end, at int) branch {
	const few = 6 // ranges are as quick to compare as to branch over
	if end-first <= few {
		return newBranch(first, end-first, 0)
	}
	width := min(bits.Len(uint(end-first)/4), 64-at%64)
	nodes := len(r.index)
	r.index = append(r.index, make([]branch, 1<<width)...)
	for slot := range 1 << width {
		next := first
		for next < end && r.starts[next].slot(at, width) == slot {
			next++
		}
		below := r.branches(first, next, at+width)
		r.index[nodes+slot], first = below, next
	}
	return newBranch(nodes, at, width)
}

func bitsOf(a netip.Addr) address {
	if a.Is4() {
		four := a.As4()
		return address{hi: uint64(binary.BigEndian.Uint32(four[:])) << 32}
	}
	six := a.As16()
	return address{binary.BigEndian.Uint64(six[:8]), binary.BigEndian.Uint64(six[8:])}
}

// slot is the number that width bits make from the bit at on, all in one half.
func (a address) slot(at, width int) int {
	half := a.hi
	if at >= 64 {
		half = a.lo
	}
	return int(half << (at & 63) >> (64 - width))
}

// above is 1 if a is above b, and else 0. It does not branch: the processor would guess
// wrongly half the time.
func (a address) above(b address) int {
	_, less := bits.Sub64(b.lo, a.lo, 0)
	_, less = bits.Sub64(b.hi, a.hi, less)
	return int(less)
}

// after is the first address after a network that begins with a; false if there is none.
func (a address) after(length int) (end address, more bool) {
	var over uint64
	if length > 64 {
		a.lo, over = bits.Add64(a.lo, 1<<(128-length), 0)
		a.hi, over = bits.Add64(a.hi, 0, over)
	} else {
		a.hi, over = bits.Add64(a.hi, 1<<(64-length), 0)
	}
	return a, over == 0 && length > 0
}
