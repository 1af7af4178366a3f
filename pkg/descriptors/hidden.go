package descriptors

import (
	"strings"

	"example.org/rls/pkg/descriptors/match"
)

// HiddenBy returns a descriptor beside n that takes every entry that n could match, so that n
// never gets one: a wildcard or a match that comes before n, or one for any value if n has a key
// and no value. It returns nil if n can be reached, or if that is not certain: an expression
// hides only what every text with its literals is, and a negated match hides nothing. A descriptor
// with an exact value or with networks can always be reached.
//
// HiddenBy looks for one such descriptor; it does not find the several descriptors
// that hide n only together.
func (n *Node) HiddenBy() *Node {
	if n.parent == nil || n.parent.sets == nil || n.Value != "" && !n.HasWildcard() || n.Match != nil && n.Match.Rank() != match.InOrder {
		return nil
	}
	before := n.order
	if n.AnyValue() && !n.HasWildcard() {
		before = len(n.parent.below) + 1
	}
	// A pattern matches all texts of another pattern exactly if it matches that pattern as a
	// text: only a '*' can take the other's '*'. The text of "any value" is "", which only the
	// patterns of any value match.
	s, text := n.parent.sets, n.Value
	if n.Match != nil {
		text = n.Match.Outline()
	}
	first := s.findPlain(Entry{n.Key, text})
	if n.Match != nil && n.Match.Fold && s.findPlain(Entry{n.Key, strings.ToUpper(text)}) != s.findPlain(Entry{n.Key, strings.ToLower(text)}) {
		first = before // the first one minds the case
	}
	if first < before {
		// With a wildcard in its key it takes this text by chance, if it has more than a literal or
		// a '*' in it.
		m := n.parent.below[first-1].Match
		if !m.Plain() || m != nil && !m.Takes(match.WithoutStars(text)) {
			first = before
		}
	}
	if first >= before {
		return nil
	}
	return n.parent.below[first-1]
}
