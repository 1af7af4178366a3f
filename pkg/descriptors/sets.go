package descriptors

import (
	"crypto/sha256"
	"math"

	"example.org/rls/pkg/descriptors/match"
)

// sets finds the descriptors below a node that take other texts than their own.
type sets struct {
	byKey   map[string]*match.Index // of the descriptors without a pattern in the key
	keys    match.Globs             // of the descriptors with a pattern in the key
	same    map[matched]*Node       // the descriptors with a match, to find a repeated one
	negated []*Node                 // those that take all values but some
}

// matched is a descriptor with a match.
type matched struct {
	key string
	sum [sha256.Size]byte
}

// setsOf are the sets of a key below n.
func (n *Node) setsOf(key string) *match.Index {
	n.makeSets()
	x := n.sets.byKey[key]
	if x == nil {
		x = new(match.Index)
		n.sets.byKey[key] = x
	}
	return x
}

func (n *Node) makeSets() {
	if n.sets == nil {
		n.sets = &sets{byKey: make(map[string]*match.Index), same: make(map[matched]*Node)}
	}
}

// put adds n, which comes after the others in the order of the rules, to the sets of its
// parent. If a descriptor there has the match of n or a network of it, put adds nothing and
// returns that descriptor and the index of the network.
func (n *Node) put() (other *Node, item int) {
	if n.Match == nil && !n.HasWildcard() {
		return nil, 0
	}
	n.parent.makeSets()
	s := n.parent.sets
	if n.Match != nil {
		if other = s.same[matched{n.Key, n.Match.Sum}]; other != nil {
			return other, 0
		}
	}
	switch {
	case match.IsPattern(n.Key):
		s.keys.Add(n.Key, n.order, n.takesValue())
	case n.Match == nil:
		n.parent.setsOf(n.Key).AddPattern(n.Value, n.order)
	case !n.Match.Exact():
		if order, item := n.parent.setsOf(n.Key).Add(n.Match, n.order); order > 0 {
			return n.parent.below[order-1], item
		}
	}
	if n.Match != nil {
		s.same[matched{n.Key, n.Match.Sum}] = n
		if n.Match.Negated() {
			s.negated = append(s.negated, n)
		}
	}
	return nil, 0
}

// takesValue says which values n takes; nil if it takes all.
func (n *Node) takesValue() func(value string) bool {
	switch {
	case n.Match != nil:
		return n.Match.Takes
	case n.Value == "":
		return nil
	}
	value := match.NewPattern(n.Value)
	return value.Takes
}

// find returns the place below a node of the descriptor that takes e; a higher one than all
// have if there is none.
func (s *sets) find(e Entry) int {
	first := math.MaxInt
	if x := s.byKey[e.Key]; x != nil {
		order, rank := x.Find(e.Value)
		if rank < match.InOrder {
			return order
		}
		first = order
	}
	return s.keys.Find(e.Key, e.Value, first)
}

// plain is find for the descriptors of which wildcards and literals say all that they take.
func (s *sets) plain(e Entry) int {
	first := s.keys.Find(e.Key, e.Value, math.MaxInt)
	if x := s.byKey[e.Key]; x != nil {
		first = x.Plain(e.Value, first)
	}
	return first
}

// valueOf is the descriptor below n that has a single value of a key, also in another case if it
// or the one that is asked for ignores that; nil if there is none.
func (n *Node) valueOf(key, value string, fold bool) *Node {
	if other := n.child(Entry{key, value}); other != nil && !fold {
		return other
	}
	if value == "" || !fold && n.sets == nil {
		return nil
	}
	x := n.setsOf(key)
	if fold && !x.HasFolded() {
		n.makeIndex(0)
		for e, child := range n.index {
			if e.Key == key && e.Value != "" && !match.IsPattern(child.Value) {
				x.AddFolded(e.Value, child.order, false)
			}
		}
	}
	if order, ignores := x.Folded(value); order > 0 && (fold || ignores) {
		return n.below[order-1]
	}
	return nil
}

// putValue notes that child takes a value.
func (n *Node) putValue(value string, child *Node) {
	fold := child.Match != nil && child.Match.Fold
	if n.index != nil && !fold {
		n.index[Entry{child.Key, value}] = child
	}
	if value == "" || match.IsPattern(child.Value) || n.sets == nil && !fold {
		return
	}
	if x := n.setsOf(child.Key); fold || x.HasFolded() {
		x.AddFolded(value, child.order, fold)
	}
}
