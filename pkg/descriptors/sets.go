package descriptors

import (
	"crypto/sha256"
	"math"

	"example.org/rls/pkg/descriptors/match"
)

// sets finds the descriptors of a level that take other texts than their own. It knows them by
// their order in the rules, from 1.
type sets struct {
	byKey map[string]*match.Index // of the descriptors without a pattern in the key
	keys  match.Globs             // of the descriptors with a pattern in the key
	same  map[matched]int         // the descriptors with a match, to find a repeated one
}

// matched is the key and the match of a descriptor.
type matched struct {
	key string
	sum [sha256.Size]byte
}

// index has the descriptors of a key.
func (s *sets) index(key string) *match.Index {
	x := s.byKey[key]
	if x == nil {
		x = new(match.Index)
		s.byKey[key] = x
	}
	return x
}

// put adds a descriptor with a wildcard in e or with the match m, which comes after the others
// in the order of the rules. If another one has the same match or a network of it, put adds nothing and
// returns the order of that one and the index of the network.
func (s *sets) put(e Entry, m *match.Match, order int) (other, item int) {
	if m != nil {
		if other = s.same[matched{e.Key, m.Sum}]; other > 0 {
			return other, 0
		}
	}
	switch {
	case match.IsPattern(e.Key):
		s.keys.Add(e.Key, order, takesValue(e.Value, m))
	case m == nil:
		s.index(e.Key).AddPattern(e.Value, order)
	case !m.Exact():
		if other, item = s.index(e.Key).Add(m, order); other > 0 {
			return other, item
		}
	}
	if m != nil {
		s.same[matched{e.Key, m.Sum}] = order
	}
	return 0, 0
}

// takesValue says which values a descriptor takes; nil if it takes all.
func takesValue(value string, m *match.Match) match.Also {
	switch {
	case m != nil:
		return m.TakesWithin
	case value == "":
		return nil
	}
	p := match.NewPattern(value)
	return func(_ *match.Work, value string) bool { return p.Takes(value) }
}

// find returns the order of the descriptor that takes e; a higher one than all have if there is
// none.
func (s *sets) find(w *match.Work, e Entry) int {
	first := math.MaxInt
	if x := s.byKey[e.Key]; x != nil {
		order, rank := x.Find(w, e.Value)
		if rank < match.InOrder {
			return order
		}
		first = order
	}
	return s.keys.Find(w, e.Key, e.Value, first)
}

// findPlain is find for the descriptors of which wildcards and literals say all that they take.
func (s *sets) findPlain(e Entry) int {
	first := s.keys.Find(nil, e.Key, e.Value, math.MaxInt)
	if x := s.byKey[e.Key]; x != nil {
		first = x.Plain(e.Value, first)
	}
	return first
}
