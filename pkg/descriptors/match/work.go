package match

import (
	"context"
	"io"
	"regexp"
	"strings"
)

// Work is the work of finding the descriptors of one request. It ends with a context, though
// package regexp cannot be interrupted: a long value is given to an expression character by character,
// and seems to end there when the context does. A nil Work does not end.
type Work struct {
	Ctx context.Context
	// left are the steps after which Ctx is asked again. A step is an instruction of an expression at
	// a byte of a value, of some nanoseconds.
	left  int
	ended bool
}

// maxSteps is the work that is not interrupted. Up to it package regexp has its fastest ways.
const maxSteps = 1 << 18

// Ended reports whether the work ended with Ctx, so that what was found means nothing.
func (w *Work) Ended() bool { return w.ended }

// goesOn notes steps that are about to be made, and reports whether they may.
func (w *Work) goesOn(steps int) bool {
	if w == nil {
		return true
	}
	if w.left -= steps; w.left < 0 {
		w.left, w.ended = maxSteps, w.ended || w.Ctx.Err() != nil
	}
	return !w.ended
}

// matches reports whether an expression, whose program has cost instructions, fits a value.
func (w *Work) matches(expression *regexp.Regexp, cost int, value string) bool {
	if steps := cost * len(value); w == nil || steps <= maxSteps {
		return w.goesOn(steps) && expression.MatchString(value)
	}
	return expression.MatchReader(&characters{strings.NewReader(value), w, cost}) && !w.ended
}

// characters are those of a value, until the work ends.
type characters struct {
	*strings.Reader
	work *Work
	cost int // of the expression
}

// ReadRune implements [io.RuneReader].
func (c *characters) ReadRune() (r rune, size int, err error) {
	if !c.work.goesOn(c.cost) {
		return 0, 0, io.EOF
	}
	return c.Reader.ReadRune()
}
