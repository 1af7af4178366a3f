package descriptors

import (
	"fmt"

	"example.org/rls/pkg/descriptors/match"
)

// Trace is how [Domain.Match] came to its answer.
type Trace struct {
	Rule *Rule // nil when no limit applies
	// Path has for each entry, the outermost first, the descriptors in the order of the rules whose key is
	// the entry's key or has a wildcard.
	Path []Step
	// Why says why no limit applies; "" with a Rule.
	Why string
	// Suggestions are texts that the request may have meant: the name of a domain, or
	// descriptors as [Domain.Suggest] has them. Explain sets none.
	Suggestions []string
}

// Step is one descriptor of the rules that was looked at.
type Step struct {
	Depth int    `json:"depth"` // of its entry, from 1
	File  string `json:"file"`  // or the path of the descriptor in a message
	Line  int    `json:"line"`  // 0 in a message
	Key   string `json:"key"`   // and value: [Printable] of what [Descriptor.Written] has
	Value string `json:"value"`
	Match By     `json:"match"` // Nothing if the descriptor does not match the entry
	Won   bool   `json:"won"`   // it took the entry; at most one of a depth did
	Why   string `json:"why"`
	// More is the number of descriptors at this depth that the path leaves out, in the last step of
	// the depth. They do not match, unless all of the steps do.
	More int `json:"more,omitempty"`
}

// Explain is [Domain.MatchNamed] with the way to the answer. It looks at every
// descriptor at the depths that the request reaches, so it is slow where there are
// many. The trace has at most maxSeen of them, or else one or two for each depth, with
// the one that won.
func (d *Domain) Explain(entries []Entry, maxSeen int) Trace {
	var t Trace
	switch {
	case d == nil:
		t.Why = "the domain has no rules"
	case len(entries) == 0:
		t.Why = "the request's descriptor has no entries"
	default:
		n := &d.root
		for i, e := range entries {
			before := len(t.Path)
			next := t.look(n, e, i+1, max(1, maxSeen))
			maxSeen -= len(t.Path) - before
			if next == nil {
				t.Why = n.noneFor(e, len(entries)-i) + d.missed(entries)
				return t
			}
			n = next
		}
		if t.Rule = d.MatchNamed(entries); t.Rule == nil {
			t.Why = n.noLimit() + d.missed(entries)
		}
	}
	return t
}

// look adds up to maxSeen of the descriptors below n that concern e, at that depth, those
// that match rather than others. It returns the descriptor that takes e, or nil.
func (t *Trace) look(n *Node, e Entry, depth, maxSeen int) *Node {
	winner := n.named(e)
	more := 0
	concerning := n.concerning(e)
	matching := 0
	for _, child := range concerning {
		if child.takes(e) != match.NoRank {
			matching++
		}
	}
	room := map[bool]int{true: maxSeen, false: maxSeen - matching} // for matching descriptors, and for others
	for _, child := range concerning {
		is := child.takes(e)
		written, matches := child.Written(), is != match.NoRank
		s := Step{
			Depth: depth, File: child.Pos.File, Line: child.Pos.Line, Key: Printable(written.Key), Value: Printable(written.Value),
			Match: child.by(is), Won: child == winner,
		}
		if s.Won && !matches {
			s.Match = child.by(match.InOrder)
		}
		if room[matches]--; room[matches] < 0 && !s.Won {
			more++
			continue
		}
		switch {
		case s.Won:
			s.Why = child.won(is)
		case !matches:
			s.Why = child.mismatch(e)
			if winner != nil {
				s.Why += "; " + winner.Pos.Place() + " won"
			}
		default:
			s.Why = child.lost(is, winner, e)
		}
		t.Path = append(t.Path, s)
	}
	if more > 0 {
		t.Path[len(t.Path)-1].More = more
	}
	return winner
}

// concerning lists the descriptors below n whose key is e's key or has a wildcard,
// in the order of the rules.
func (n *Node) concerning(e Entry) []*Node {
	var found []*Node
	for _, child := range n.below {
		if child.Key == e.Key || match.IsPattern(child.Key) {
			found = append(found, child)
		}
	}
	return found
}

// mismatch says why n does not match e.
func (n *Node) mismatch(e Entry) string {
	switch key := match.NewPattern(n.Key); {
	case !key.Takes(e.Key):
		return "its key does not match the entry's"
	case n.Match != nil:
		return n.Match.Says(false)
	}
	return "its value does not match the entry's"
}

// won says why n goes first, which takes an entry in a way of rank r.
func (n *Node) won(r match.Rank) string {
	switch {
	case r == match.NoRank:
		return "the entry names its counter, not one of its values"
	case n.Match == nil:
		return won[r]
	case r == match.InOrder:
		return "it is the first wildcard or match that has the entry: " + n.Match.Says(true)
	case r == match.ByNetwork:
		return won[r]
	}
	return n.Match.Says(true)
}

// lost says why n, which takes e in a way of rank r, lost to winner.
func (n *Node) lost(r match.Rank, winner *Node, e Entry) string {
	place := winner.Pos.Place()
	first := winner.takes(e)
	switch {
	case first != r:
		return fmt.Sprintf("%s goes first: %s", place, winner.won(first))
	case r == match.ByNetwork:
		return fmt.Sprintf("%s goes first: its network %s is longer", place, n.parent.sets.byKey[e.Key].Network(e.Value))
	}
	what := "wildcard"
	if winner.Match != nil {
		what = "match"
	}
	if n.Pos.File == winner.Pos.File && n.Pos.Line > 0 {
		return fmt.Sprintf("shadowed by the %s above it, %s", what, place)
	}
	return fmt.Sprintf("shadowed by the %s before it, %s", what, place)
}

// noneFor says why no limit applies if no descriptor below n takes e, which is
// followed by other entries; left counts e and them.
func (n *Node) noneFor(e Entry, left int) string {
	why := "no descriptor matches " + e.Pair()
	switch {
	case n.parent == nil:
		return why
	case len(n.below) == 0:
		return fmt.Sprintf("%s: %s too many, because %s has no descriptors below it", why, entryCount(left), n.Pos.Place())
	}
	return why + " below " + n.Pos.Place()
}

// noLimit says why no limit applies if n, which has no rule, takes the last entry of
// the request.
func (n *Node) noLimit() string {
	place := n.Pos.Place()
	if missing := n.nearest(); missing > 0 {
		return fmt.Sprintf("%s too few: %s has no limit of its own, only descriptors below it have", entryCount(missing), place)
	}
	if len(n.below) > 0 {
		return place + " has no limit, and no descriptor below it has one"
	}
	return place + " has no limit"
}

// missed names a rule, if there is one, that would limit entries if a descriptor that
// lost had won.
func (d *Domain) missed(entries []Entry) string {
	n := &d.root
	for i, e := range entries {
		winner := n.named(e)
		if winner == nil {
			break
		}
		for _, child := range n.concerning(e) {
			if child == winner || child.takes(e) == match.NoRank {
				continue
			}
			if rule := child.find(nil, entries[i+1:]); rule != nil {
				return fmt.Sprintf("; the limit of %s (%s) is not reached, because %s goes first and the choice is final", rule.Path, rule.Pos.Place(), winner.Pos.Place())
			}
		}
		n = winner
	}
	return ""
}

// nearest is how many depths below n the nearest rule is; 0 if there is none.
func (n *Node) nearest() (depth int) {
	for _, child := range n.below {
		below := 1
		if child.Rule == nil {
			below += child.nearest()
		}
		if (child.Rule != nil || below > 1) && (depth == 0 || below < depth) {
			depth = below
		}
	}
	return depth
}

func entryCount(n int) string {
	if n == 1 {
		return "one entry"
	}
	return fmt.Sprintf("%d entries", n)
}
