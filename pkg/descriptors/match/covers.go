package match

import "strings"

// Outline is a text that a pattern or a literal takes only if it takes all values of m; so is
// the text of m's own pattern.
func (m *Match) Outline() string {
	if m.negated || m.verify != nil {
		return unheard
	}
	return m.literal.hardest()
}

// Plain reports whether the literal says all that m takes, and a nil m is.
func (m *Match) Plain() bool { return m == nil || !m.negated && m.verify == nil }

// Negated reports whether m takes all values but those of its texts.
func (m *Match) Negated() bool { return m.negated }

// Covers reports whether m, which is negated, takes every value that a pattern takes, or that
// other does unless it is nil. It returns false where that is not certain.
func (m *Match) Covers(pattern string, other *Match) bool {
	fold := m.Fold || other != nil && other.Fold
	sameCase := m.Fold == (other != nil && other.Fold)
	switch {
	case other != nil && other.negated: // all that m leaves out, other must leave out, too
		if m.verify != nil || other.verify != nil || m.Fold && !other.Fold {
			return m.kind.rank == ByValue && sameCase && m.leavesOut(func(value string) bool { return !other.takes(value, []byte(value)) })
		}
		text := m.literal.hardest()
		if other.Fold {
			text = Folded(text)
		}
		return standsIn(other.literal, text)
	case m.kind.rank == ByValue:
		p := NewPattern(pattern)
		return (sameCase || !m.Fold) && m.leavesOut(func(value string) bool { return other == nil && !p.Takes(value) || other != nil && !other.Takes(value) })
	}
	start, end := "", ""
	switch {
	case other == nil:
		p := NewPattern(pattern)
		start, end = p.prefix, p.suffix
	case other.verify == nil && other.literal.at == atStart:
		start = other.literal.text
	case other.verify == nil && other.literal.at == atEnd:
		end = other.literal.text
	}
	text := m.literal.text
	if fold {
		start, end, text = Folded(start), Folded(end), Folded(text)
	}
	differ := func(has func(s, part string) bool, s string) bool { return !has(s, text) && !has(text, s) }
	switch {
	case m.kind.rank == ByNetwork: // no address has such a byte
		return strings.IndexFunc(start+end, func(r rune) bool { return r > 0x7f || hexValue[r] == 0 && r != ':' && r != '.' }) >= 0
	case m.verify != nil:
		return false
	case m.literal.at == atStart:
		return differ(strings.HasPrefix, start)
	case m.literal.at == atEnd:
		return differ(strings.HasSuffix, end)
	}
	return false
}

// leavesOut reports whether is returns true for each of the values of m, which are few.
func (m *Match) leavesOut(is func(value string) bool) bool {
	const few = 100
	for _, value := range m.Values {
		if !is(value) {
			return false
		}
	}
	return len(m.Values) <= few
}
