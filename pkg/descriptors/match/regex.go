package match

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

const (
	maxRegex = 1000 // bytes of an expression
	maxCost  = 2000 // instructions of its program
)

// compileRegex makes the match of an expression that fits whole values.
func compileRegex(m *Match, texts []string) []Wrong {
	text, flags := texts[0], syntax.Perl
	if len(text) > maxRegex {
		return []Wrong{{0, fmt.Errorf("must have at most %d bytes, not %d; split it into several descriptors", maxRegex, len(text))}}
	}
	parsed, err := syntax.Parse(text, flags)
	if err != nil {
		return []Wrong{{0, fmt.Errorf("is no regular expression of RE2: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))}}
	}
	whole := `\A(?:` + text + `)\z`
	if m.Fold {
		whole = "(?i)" + whole
		parsed, _ = syntax.Parse(text, flags|syntax.FoldCase) // as before
	}
	parsed = parsed.Simplify()
	program, _ := syntax.Compile(parsed) // which does not fail
	if m.Cost = len(program.Inst); m.Cost > maxCost {
		return []Wrong{{0, fmt.Errorf("has a program of %d instructions, each of which can cost time at every character of a value; want at most %d: repeat less, {1,20} in place of {1,200}, or use prefix, suffix, contains or values", m.Cost, maxCost)}}
	}
	expression, err := regexp.Compile(whole)
	if err != nil {
		return []Wrong{{0, fmt.Errorf("is too long a regular expression for RE2: %w", err)}}
	}
	parts, before, behind := trimAny(parsed)
	var l literals
	for _, part := range parts {
		l.add(part, m.Fold)
	}
	l.end()
	m.literal = literal{l.best, anywhere}
	switch all := len(parts) == 0 || len(parts) == 1 && parts[0].Op == syntax.OpLiteral && l.best == string(parts[0].Rune); {
	case !all || !before && !behind:
		m.verify = func(value string, w *Work) bool { return w.matches(expression, m.Cost, value) }
	case !before:
		m.literal.at = atStart
	case !behind:
		m.literal.at = atEnd
	}
	if m.Fold {
		m.literal.text = foldText(l.best)
	}
	return nil
}

// trimAny returns the parts of an expression without those at both ends that fit any text.
func trimAny(e *syntax.Regexp) (parts []*syntax.Regexp, before, behind bool) {
	parts = []*syntax.Regexp{e}
	if e.Op == syntax.OpConcat {
		parts = e.Sub
	}
	fitsAny := func(e *syntax.Regexp) bool { return e.Op == syntax.OpStar && e.Sub[0].Op == syntax.OpAnyChar }
	for len(parts) > 0 && fitsAny(parts[0]) {
		parts, before = parts[1:], true
	}
	for len(parts) > 0 && fitsAny(parts[len(parts)-1]) {
		parts, behind = parts[:len(parts)-1], true
	}
	return parts, before, behind
}

// literals finds the longest text that all values of an expression have, so that the
// expression is asked only about values with it.
type literals struct {
	best string
	run  strings.Builder // of neighbouring characters
}

// add adds the next part of the expression.
func (l *literals) add(part *syntax.Regexp, fold bool) {
	switch part.Op {
	case syntax.OpConcat, syntax.OpCapture:
		for _, sub := range part.Sub {
			l.add(sub, fold)
		}
	case syntax.OpLiteral:
		for _, r := range part.Rune {
			if r == utf8.RuneError || part.Flags&syntax.FoldCase != 0 && !fold { // also stands for invalid bytes
				l.end()
				continue
			}
			l.run.WriteRune(r)
		}
	case syntax.OpEmptyMatch, syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
	default:
		l.end()
	}
}

// end ends a run.
func (l *literals) end() {
	if l.run.Len() > len(l.best) {
		l.best = l.run.String()
	}
	l.run.Reset()
}
