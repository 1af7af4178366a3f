package descriptors

import (
	"crypto/sha256"
	"math"

	"github.com/gaissmai/bart"
)

// sets is the index of the descriptors below a node that take other texts than their own.
type sets struct {
	byKey map[string]*valueSets // of the descriptors without a pattern in the key
	keys  globs                 // of the descriptors with a pattern in the key
	same  map[matched]*Node     // the descriptors with a match, to find a repeated one
}

// matched is a descriptor with a match.
type matched struct {
	key string
	sum [sha256.Size]byte
}

// valueSets are the descriptors of one key.
type valueSets struct {
	patterns globs
	folds    bool               // some ignore case
	folded   map[string]*Node   // those with values, by the values as appendFolded has them; see foldedValues
	networks *bart.Table[*Node] // those with networks
	others   members            // with other matches, in the order of the rules
}

// setsOf are the sets of a key below n.
func (n *Node) setsOf(key string) *valueSets {
	n.makeSets()
	v := n.sets.byKey[key]
	if v == nil {
		v = new(valueSets)
		n.sets.byKey[key] = v
	}
	return v
}

func (n *Node) makeSets() {
	if n.sets == nil {
		n.sets = &sets{byKey: make(map[string]*valueSets)}
	}
}

// put adds n, which comes after the others in the order of the rules, to the sets of its
// parent. If a descriptor there takes a text of n, put adds nothing and returns that
// descriptor and the index of the text.
func (n *Node) put() (other *Node, item int) {
	n.parent.makeSets()
	s, m := n.parent.sets, n.Match
	if m == nil || isPattern(n.Key) {
		if m != nil {
			if other = s.repeats(n); other != nil {
				return other, 0
			}
		}
		s.addPattern(n)
		return nil, 0
	}
	v := n.parent.setsOf(n.Key)
	if m.rank() != inOrder {
		return m.kind.put(n)
	}
	if other = s.repeats(n); other == nil {
		v.folds = v.folds || m.fold
		v.others.add(n)
	}
	return other, 0
}

// repeats is the descriptor that has the key and the match of n; without one it notes n.
func (s *sets) repeats(n *Node) *Node {
	is := matched{n.Key, n.Match.Sum}
	if other := s.same[is]; other != nil {
		return other
	}
	if s.same == nil {
		s.same = make(map[matched]*Node)
	}
	s.same[is] = n
	return nil
}

// find returns the descriptor that takes e, nil if there is none.
func (s *sets) find(e Entry) *Node {
	v := s.byKey[e.Key]
	if v != nil && v.folds {
		return s.findFolding(v, e)
	}
	return s.among(v, e, nil)
}

func (s *sets) findFolding(v *valueSets, e Entry) *Node {
	var room [foldRoom]byte
	return s.among(v, e, appendFolded(room[:0], e.Value))
}

// among is find for a key with the descriptors v, which may be nil. folded is the value as
// appendFolded has it.
func (s *sets) among(v *valueSets, e Entry, folded []byte) *Node {
	var best *glob
	if v != nil {
		if v.folded != nil {
			if n := v.folded[string(folded)]; n != nil && n.ignoresCase() {
				return n
			}
		}
		if v.networks != nil {
			if address, ok := parseAddress(e.Value); ok {
				if n, found := v.networks.Lookup(address); found {
					return n
				}
			}
		}
		best = v.patterns.find(e.Value, "", nil)
	}
	best = s.keys.find(e.Key, e.Value, best)
	if v != nil && v.others.any() {
		order := math.MaxInt
		if best != nil {
			order = best.order
		}
		if n := v.others.find(e.Value, folded, order); n != nil {
			return n
		}
	}
	if best == nil {
		return nil
	}
	return best.node
}
