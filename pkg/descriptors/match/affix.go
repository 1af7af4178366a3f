package match

// literal is a text that values have in a place; without a text it says nothing of them. The
// text is as appendFolded has it if its match ignores case.
type literal struct {
	text string
	at   side
}

// side is where a literal stands in values.
type side uint8

const (
	atStart side = iota
	atEnd
	anywhere
)

// standsIn reports whether a text has the literal in its place.
func standsIn[T string | []byte](l literal, text T) bool {
	if l.at == atEnd {
		return standsAt(l, text, len(text)-len(l.text))
	}
	for i := range len(text) - len(l.text) + 1 {
		if standsAt(l, text, i) {
			return true
		}
		if l.at == atStart {
			break
		}
	}
	return false
}

// standsAt reports whether the literal stands in a text from the byte i on, and this is its
// place.
func standsAt[T string | []byte](l literal, text T, i int) bool {
	end := i + len(l.text)
	return i >= 0 && end <= len(text) && (l.at != atStart || i == 0) && (l.at != atEnd || end == len(text)) &&
		string(text[i:end]) == l.text
}

// unheard is a text that no rule has: a pattern that takes it takes every text.
const unheard = "\x00*\x00"

// hardest is a text with the literal that another pattern takes only if it takes all such
// texts.
func (l literal) hardest() string {
	return [...]string{atStart: l.text + unheard, atEnd: unheard + l.text, anywhere: unheard + l.text + unheard}[l.at]
}

// compileAffix makes the match of a text in a place.
func compileAffix(at side) func(m *Match, texts []string) []Wrong {
	return func(m *Match, texts []string) []Wrong {
		m.literal = literal{texts[0], at}
		if m.Fold {
			m.literal.text = string(appendFolded(nil, texts[0]))
		}
		return nil
	}
}

// Outline is a text that a pattern or a literal takes only if it takes all values of m.
func (m *Match) Outline() string {
	if m.negated {
		return unheard
	}
	return m.literal.hardest()
}

// Plain reports whether a literal says all that m takes; of a nil m, a wildcard does.
func (m *Match) Plain() bool { return m == nil || !m.negated && m.verify == nil }
