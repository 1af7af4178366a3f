package descriptors

import (
	"slices"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/descriptors/match"
)

// Suggest returns the name of the domain that a misspelt name was probably meant to be,
// or nothing.
func (t *Tree) Suggest(domain string) []string {
	names := make([]string, len(t.Domains()))
	for i, d := range t.Domains() {
		names[i] = d.Name
	}
	if name := spelling.Nearest(domain, names); name != "" {
		return []string{name}
	}
	return nil
}

// Suggest returns at most three descriptors that rules of d limit and that entries, which
// none limits, were probably meant to be: [Argument] of the nearest ones, in the order of
// the rules. They keep at least one of the entries. Other keys and values are nearly the
// same, and up to two entries are missing or too many; "…" stands for a value that can be
// anything. Suggest looks at no more than so many descriptors of the rules.
func (d *Domain) Suggest(entries []Entry, looks int) []string {
	s := suggester{domain: d, entries: entries, looks: looks, bound: maxCost}
	s.below(&d.root, entries, nil, false, 0)
	return s.found
}

// The cost of a suggestion is the number of letters that are edited and of values that are
// filled in, and oneDepth for each entry that is added or left out.
const (
	oneDepth       = 2
	maxCost        = 2 * oneDepth
	maxSuggestions = 3
)

type suggester struct {
	domain  *Domain
	entries []Entry
	looks   int
	found   []string
	cost    int // of each of found
	bound   int // the highest cost of one that may still be found
}

// below tries the descriptors below n, to which made leads at a cost, for the rest of the
// entries. kept reports whether made has one of the entries before.
func (s *suggester) below(n *Node, rest, made []Entry, kept bool, cost int) {
	if s.looks--; s.looks < 0 || cost > s.bound || !kept && len(n.below)+len(rest) == 0 {
		return
	}
	if kept && n.Rule != nil {
		s.offer(made, cost+oneDepth*len(rest))
	}
	made = slices.Clip(made)
	var known, taken bool // the key, or the whole entry, is probably not misspelt
	if len(rest) > 0 {
		known = slices.ContainsFunc(n.below, func(child *Node) bool { return child.Key == rest[0].Key })
		taken = n.next(nil, rest[0]) != nil
	}
	for _, child := range n.below {
		if len(rest) > 0 && (!known || child.Key == rest[0].Key) {
			if e, edits, near := child.near(rest[0]); near && (edits == 0 || !taken) {
				s.below(child, rest[1:], append(made, e), true, cost+edits)
			}
		}
		if kept || len(child.below) > 0 {
			e, price := s.example(child)
			s.below(child, rest, append(made, e), kept, cost+price)
		}
	}
	if len(rest) > 0 {
		s.below(n, rest[1:], made, kept, cost+oneDepth)
	}
}

// offer takes a descriptor if its rule does, and if it is among the first ones with the
// lowest cost.
func (s *suggester) offer(made []Entry, cost int) {
	if cost > s.bound || s.domain.Match(made) == nil {
		return
	}
	if cost < s.cost || s.found == nil {
		s.cost, s.bound, s.found = cost, cost, nil
	}
	if text := Argument(made); !slices.Contains(s.found, text) {
		s.found = append(s.found, text)
	}
	if len(s.found) == maxSuggestions {
		s.bound = cost - 1
	}
}

// near returns the entry that n takes and e was probably meant to be, and the number of
// edits.
func (n *Node) near(e Entry) (meant Entry, edits int, near bool) {
	if key := match.NewPattern(n.Key); !key.Takes(e.Key) {
		if edits, near = spelling.Near(e.Key, n.Key); !near || match.IsPattern(n.Key) {
			return e, 0, false
		}
		e.Key = n.Key
	}
	switch {
	case n.fits(e.Value) != match.NoRank:
	case n.Match != nil:
		return e, 0, false
	case e.Value == "":
		e.Value, edits = n.Value, edits+1
	default:
		more, near := spelling.Near(e.Value, n.Value)
		if !near || match.IsPattern(n.Value) {
			return e, 0, false
		}
		e.Value, edits = n.Value, edits+more
	}
	return e, edits, true
}

// example is an entry that n takes, and the cost of adding it, which is lower for an entry
// of the request in another place.
func (s *suggester) example(n *Node) (Entry, int) {
	for _, e := range s.entries {
		if e.Key == n.Key && e.Value != "" && n.fits(e.Value) != match.NoRank {
			return e, oneDepth - 1
		}
	}
	if n.Value == "" {
		return Entry{n.Key, "…"}, oneDepth
	}
	return n.Entry, oneDepth
}
