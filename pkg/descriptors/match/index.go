package match

import (
	"math"
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"
)

// Index finds which of the descriptors of a key takes a value, among those with a wildcard or a
// match. It knows descriptors by their order in the rules, from 1.
type Index struct {
	patterns Globs
	others   *members       // with a match of the rank InOrder; nil without any
	folds    bool           // a match ignores case
	values   map[string]int // see AddFolded

	orders []int // of the descriptors with networks
	// Of a single descriptor with networks its match's own; of several those of all, each with the
	// place of its descriptor in orders.
	networks *bart.Table[int32]
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
	return x.addNetworks(m, order)
}

func (x *Index) addNetworks(m *Match, order int) (other, item int) {
	if x.networks == nil {
		x.orders, x.networks = []int{order}, m.networks
		return 0, 0
	}
	for network, i := range m.networks.All() {
		if owner, found := x.networks.Get(network); found && (other == 0 || int(i) < item) {
			other, item = x.owner(owner), int(i)
		}
	}
	if other > 0 {
		return other, item
	}
	if len(x.orders) == 1 {
		first := x.networks
		x.networks = new(bart.Table[int32])
		x.own(first, 0)
	}
	x.own(m.networks, len(x.orders))
	x.orders = append(x.orders, order)
	return 0, 0
}

// own gives networks to the descriptor at a place in orders.
func (x *Index) own(networks *bart.Table[int32], place int) {
	for network := range networks.All() {
		x.networks.Insert(network, int32(place))
	}
}

// owner is the order of the descriptor whose network has a value.
func (x *Index) owner(value int32) int {
	if len(x.orders) == 1 {
		return x.orders[0]
	}
	return x.orders[value]
}

// Seal ends the time of Add, so that look-ups are quicker.
func (x *Index) Seal() {
	if len(x.orders) > 1 {
		x.networks = x.networks.Clone() // a copy lies closer together in memory
	}
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
	x.values[foldText(value)] = order
}

// Folded finds the descriptor of a value that AddFolded has added in some case, 0 without one.
func (x *Index) Folded(value string) (order int, ignores bool) {
	order = x.values[foldText(value)]
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
			if owner, found := x.networks.Lookup(address); found {
				return x.owner(owner), ByNetwork
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
		order = x.others.find(nil, value, []byte(foldText(value)), order, true)
	}
	return order
}

// WithoutStars is a pattern with a byte that no rule has in place of each '*': a match takes it only
// if it takes all values of the pattern.
func WithoutStars(pattern string) string { return strings.ReplaceAll(pattern, "*", "\x00") }

// Network is the longest network that has the address, which is one.
func (x *Index) Network(value string) netip.Prefix {
	address, _ := ParseAddress(value)
	network, _, _ := x.networks.LookupPrefixLPM(netip.PrefixFrom(address, address.BitLen()))
	return network
}
