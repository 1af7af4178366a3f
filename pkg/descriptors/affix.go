package descriptors

import (
	"bytes"
	"strings"
)

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

// in reports whether a value has the literal in its place.
func (l literal) in(value string) bool {
	switch l.at {
	case atStart:
		return strings.HasPrefix(value, l.text)
	case atEnd:
		return strings.HasSuffix(value, l.text)
	}
	return strings.Contains(value, l.text)
}

// inFolded reports whether a value, as appendFolded has it, has the literal in its place.
func (l literal) inFolded(value []byte) bool {
	switch n := len(l.text); {
	case len(value) < n:
		return false
	case l.at == atStart:
		return string(value[:n]) == l.text
	case l.at == atEnd:
		return string(value[len(value)-n:]) == l.text
	}
	return bytes.Contains(value, []byte(l.text))
}

// hardest is a text with the literal that another pattern takes only if it takes all such
// texts.
func (l literal) hardest() string {
	return [...]string{atStart: l.text + unheard, atEnd: unheard + l.text, anywhere: unheard + l.text + unheard}[l.at]
}

// compileAffix makes the match of a text in a place.
func compileAffix(at side) func(m *Match, texts []string) (item int, err error) {
	return func(m *Match, texts []string) (item int, err error) {
		m.literal = literal{texts[0], at}
		if m.fold {
			m.literal.text = string(appendFolded(nil, texts[0]))
		}
		return 0, nil
	}
}
