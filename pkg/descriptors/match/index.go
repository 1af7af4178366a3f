package match

import (
	"math"
	"net/netip"
	"strings"
)

// Index finds which of the descriptors of a key takes a value, among those with a wildcard or a
// match. It knows descriptors by their order in the rules, from 1.
type Index struct {
	patterns Globs
	others   *members       // with a match of the rank InOrder; nil without any
	folds    bool           // a match ignores case
	values   map[string]int // see AddFolded

	// Descriptors with networks.
	orders   []int
	matches  []*Match
	known    map[netip.Prefix]int32 // the owner of each network, if there are several descriptors, until Seal
	networks *networks              // since Seal
}

// AddPattern adds a descriptor with a wildcard, which comes after the others in the order of
// the rules.
func (x *Index) AddPattern(pattern string, order int) { x.patterns.Add(pattern, order, nil) }

// Add adds a descriptor with a match of the rank InOrder or ByNetwork, which comes after the
// others in the order of the rules. If another one has a network of it, Add changes nothing and returns
// the order of the other one and the index of the network in the match.
func (x *Index) Add(m *Match, order int) (other, item int) {
	if m.Rank() == InOrder {
		if x.others == nil {
			x.others = new(members)
		}
		x.folds = x.folds || m.Fold
		x.others.add(m, order)
		return 0, 0
	}
	if len(x.matches) == 1 {
		x.know(0)
	}
	for i, n := range m.networks {
		if owner, found := x.known[n.Prefix]; found {
			return x.orders[owner], i
		}
	}
	x.orders, x.matches = append(x.orders, order), append(x.matches, m)
	if len(x.matches) > 1 {
		x.know(len(x.matches) - 1)
	}
	return 0, 0
}

// know notes the networks of a match.
func (x *Index) know(owner int) {
	if x.known == nil {
		x.known = make(map[netip.Prefix]int32)
	}
	for _, n := range x.matches[owner].networks {
		x.known[n.Prefix] = int32(owner)
	}
}

// Seal ends the time of Add. Networks are found from then on.
func (x *Index) Seal() {
	switch len(x.matches) {
	case 0:
		return
	case 1:
		x.networks = x.matches[0].set
	default:
		all := make([]network, 0, len(x.known))
		for prefix, owner := range x.known {
			all = append(all, network{prefix, owner})
		}
		x.networks = newNetworks(all)
	}
	for _, m := range x.matches {
		m.networks = nil
	}
	x.known, x.matches = nil, nil
}

// AddFolded adds a single value of a descriptor to those that are compared without regard to
// case; ignores reports whether it is taken in any case. One of the values for which the case
// matters stands for all that differ from it in case only.
func (x *Index) AddFolded(value string, order int, ignores bool) {
	if x.values == nil {
		x.folds, x.values = true, make(map[string]int)
	}
	if !ignores {
		order = -order
	}
	x.values[Folded(value)] = order
}

// Folded finds the descriptor of a value that AddFolded has added in some case, 0 without one.
func (x *Index) Folded(value string) (order int, ignores bool) {
	order = x.values[Folded(value)]
	return max(order, -order), order > 0
}

// HasFolded reports whether AddFolded has added a value.
func (x *Index) HasFolded() bool { return x.values != nil }

// Find returns the order of the descriptor that goes first of those that take a value, and its
// rank; without one it returns a higher order than all have.
// Once w has ended they mean nothing.
func (x *Index) Find(w *Work, value string) (order int, rank Rank) {
	if !x.folds {
		return x.find(w, value, nil)
	}
	var room [foldRoom]byte
	return x.find(w, value, appendFolded(room[:0], value))
}

func (x *Index) find(w *Work, value string, folded []byte) (order int, rank Rank) {
	if x.values != nil {
		if order := x.values[string(folded)]; order > 0 {
			return order, ByValue
		}
	}
	if x.networks != nil {
		if address, ok := ParseAddress(value); ok {
			if owner, bits := x.networks.find(address); bits >= 0 {
				return x.orders[owner], ByNetwork
			}
		}
	}
	order = x.patterns.Find(nil, value, "", math.MaxInt)
	if x.others != nil {
		order = x.others.find(w, value, folded, order, false)
	}
	return order, InOrder
}

// Plain is Find for the descriptors of which wildcards and literals say all that they take, and
// which come before that order. The value may be a pattern, whose '*' only wildcards take.
func (x *Index) Plain(value string, before int) (order int) {
	order = x.patterns.Find(nil, value, "", before)
	if x.others != nil {
		value = WithoutStars(value)
		order = x.others.find(nil, value, []byte(Folded(value)), order, true)
	}
	return order
}

// WithoutStars is a pattern with a byte that no rule has in place of each '*': a match takes it only
// if it takes all values of the pattern.
func WithoutStars(pattern string) string { return strings.ReplaceAll(pattern, "*", "\x00") }

// Network is the longest network that has the address, which is one.
func (x *Index) Network(value string) netip.Prefix {
	address, _ := ParseAddress(value)
	_, bits := x.networks.find(address)
	network, _ := address.Prefix(int(bits))
	return network
}
