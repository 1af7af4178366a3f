package match

import "strings"

// Outline is a text that a pattern or a literal takes only if it takes all values of m.
func (m *Match) Outline() string {
	if m.negated {
		return unheard
	}
	return m.literal.hardest()
}

// Plain reports whether a literal says all that m takes; of a nil m, a wildcard does.
func (m *Match) Plain() bool { return m == nil || !m.negated && m.verify == nil }

// Negated reports whether m takes all values but those of its texts.
func (m *Match) Negated() bool { return m.negated }

// Covers reports whether m, which is negated, takes every value that a pattern takes, or that
// other does unless it is nil. It returns false where that is not certain.
func (m *Match) Covers(pattern string, other *Match) bool {
	sameCase := m.Fold == (other != nil && other.Fold)
	switch {
	case other != nil && other.negated: // all that m leaves out, other must leave out, too
		if m.verify != nil || other.verify != nil || m.Fold && !other.Fold {
			return m.kind.rank == ByValue && sameCase && m.leavesOut(func(value string) bool { return !other.takes(value, []byte(value), nil) })
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
	start, end, has := "", "", "" // what all values of the other begin and end with, and have
	if other == nil {
		p := NewPattern(pattern)
		start, end, has = p.prefix, p.suffix, p.prefix+p.suffix
	} else {
		has = other.literal.text
		switch other.literal.at {
		case atStart:
			start = has
		case atEnd:
			end = has
		}
	}
	text := m.literal.text
	if m.Fold || other != nil && other.Fold {
		start, end, text = Folded(start), Folded(end), Folded(text)
	}
	switch {
	case m.kind.rank == ByNetwork: // no address has such a byte
		return strings.ContainsFunc(has, func(r rune) bool { return !strings.ContainsRune("0123456789abcdefABCDEF.:", r) })
	case m.verify != nil:
		return false
	case m.literal.at == atStart:
		return !strings.HasPrefix(start, text) && !strings.HasPrefix(text, start)
	case m.literal.at == atEnd:
		return !strings.HasSuffix(end, text) && !strings.HasSuffix(text, end)
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
