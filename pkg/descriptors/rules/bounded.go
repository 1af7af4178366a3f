package rules

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The bounds of a table's text. A reader of CSV keeps a whole row in memory.
const (
	maxField = 1 << 16 // bytes of a field
	maxInRow = 100     // of a row, far more than there are columns
	maxSkip  = 1 << 20 // bytes of a row behind those that were read, in which its line ends
)

// errTooLong is the error of bounded.Read at a field or a row that is beyond the bounds.
var errTooLong = errors.New("beyond the bounds of a table")

// bounded is a text of CSV that ends with errTooLong in a field or a row that is beyond the bounds, so
// that its reader keeps little of it. It goes on behind that line after skip.
type bounded struct {
	text *bufio.Reader
	// wrong says, after errTooLong, how the field is wrong that begins at the line and the column of
	// began.
	wrong string
	began [2]int

	line, column  int // of the next byte
	state         inField
	bytes, fields int // of the field and of the row so far
}

// inField is where in a field the next byte stands.
type inField byte

const (
	atStartOf   inField = iota
	unquoted            // in a field without quotes, or behind those of one
	quoted              // between quotes
	behindQuote         // which ends the field, unless another one follows
)

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (n int, err error) {
	if b.wrong != "" {
		return 0, errTooLong
	}
	if _, err := b.text.Peek(1); err != nil {
		return 0, err
	}
	chunk, _ := b.text.Peek(min(len(p), b.text.Buffered()))
	for ; n < len(chunk) && b.wrong == ""; n++ {
		if c := chunk[n]; b.state == unquoted && c != ',' && c != '\n' && b.bytes < maxField {
			b.column, b.bytes = b.column+1, b.bytes+1 // as take would, for nearly all bytes
		} else {
			b.take(c)
		}
	}
	copy(p, chunk[:n])
	return b.text.Discard(n)
}

// take notes the next byte of the text.
func (b *bounded) take(c byte) {
	if b.state == atStartOf {
		b.began = [2]int{b.line, b.column}
	}
	open := b.state == quoted
	b.column++
	switch {
	case c == '"' && b.state == atStartOf:
		b.state = quoted
	case c == '"' && open:
		b.state = behindQuote
	case c == '"' && b.state == behindQuote: // two of them stand for one
		b.state = quoted
		b.bytes++
	case c == ',' && !open:
		b.state, b.bytes = atStartOf, 0
		b.fields++
	case c == '\n' && !open:
		b.newLine()
		b.state, b.bytes, b.fields = atStartOf, 0, 0
	case open:
		b.bytes++
		if c == '\n' {
			b.newLine()
		}
	default:
		b.state = unquoted
		b.bytes++
	}
	switch {
	case b.fields == maxInRow:
		b.began = [2]int{b.line, b.column}
		b.wrong = fmt.Sprintf("the row has more than %d fields; a table has at most the columns %s", maxInRow, strings.Join(columns, ", "))
	case b.bytes > maxField+1, b.bytes > maxField && c != '\r': // which may be the end of the line
		b.wrong = fmt.Sprintf("the field that begins here has more than %d bytes; write a shorter one, or end its quote or its line", maxField)
	}
}

func (b *bounded) newLine() { b.line, b.column = b.line+1, 1 }

// skip goes on behind the line of the field that is wrong. It returns io.EOF if that line does not
// end, or not soon, and the error of the text.
func (b *bounded) skip() error {
	for skipped := 0; skipped < maxSkip; {
		part, err := b.text.ReadSlice('\n')
		skipped += len(part)
		switch {
		case err == nil:
			b.newLine()
			b.state, b.bytes, b.fields, b.wrong = atStartOf, 0, 0, ""
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
	return io.EOF
}
