package remote

import (
	"bytes"
	"fmt"
)

// A Bound bounds the answers of a server. The clients of its protocol make room for whatever length
// a server announces, so a Bound reads the answers before they do: lines, some of which announce
// bytes or elements that follow them. It is for one connection and one goroutine.
type Bound struct {
	// Header reads a line with its line break. It returns the number of bytes that follow
	// the line and are no lines, and the number of elements that do. Lines that begin with
	// + or : announce neither.
	Header func(line []byte) (body, elements int, err error)
	// MaxBytes bounds the answers to one exchange, with the room that clients make for elements.
	MaxBytes int

	left int    // of MaxBytes
	body int    // bytes until the next line
	line []byte // the beginning of a line whose end has not come
	open []int  // how many elements the lists lack whose end has not come, the innermost last
}

const (
	// maxLine bounds the bytes of a line. gomemcache refuses lines of 4 KiB.
	maxLine = 3 << 10
	// elementSize is the room that a client makes for an element before it reads it.
	elementSize = 40
	// maxDepth bounds the lists in each other, which clients read by recursion.
	maxDepth = 16
)

// Begin begins an exchange: the answers to commands that are sent together.
func (b *Bound) Begin() { b.left = b.MaxBytes }

// Complete reports whether each answer that has begun has ended.
func (b *Bound) Complete() bool { return b.body == 0 && len(b.line) == 0 && len(b.open) == 0 }

// Check reads the next bytes. After an error, which says why no command has such an answer,
// the connection is of no use.
func (b *Bound) Check(p []byte) error {
	b.left -= len(p)
	for len(p) > 0 && b.left >= 0 {
		if b.body > 0 {
			n := min(b.body, len(p))
			b.body -= n
			p = p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			if b.line = append(b.line, p...); len(b.line) > maxLine {
				return Wrong("a line of more than %d bytes, %.40q", maxLine, b.line)
			}
			return nil
		}
		line := p[:end]
		p = p[end:]
		if (line[0] == ':' || line[0] == '+') && len(b.line) == 0 { // as most answers
			if len(b.open) > 0 {
				b.ended()
			}
		} else if err := b.read(line); err != nil {
			return err
		}
	}
	if b.left < 0 {
		return Wrong("more than %d bytes", b.MaxBytes)
	}
	return nil
}

// read reads a line, whose beginning may have come before.
func (b *Bound) read(line []byte) error {
	if len(b.line) > 0 {
		line = append(b.line, line...)
		b.line = b.line[:0]
	}
	body, elements, err := b.Header(line)
	switch {
	case err != nil:
		return err
	case body > b.left || elements > b.left/elementSize:
		return Wrong("%.40q announces more than %d bytes", line, b.MaxBytes)
	}
	b.body = body
	if b.left -= elements * elementSize; elements == 0 {
		b.ended()
		return nil
	}
	if b.open = append(b.open, elements); len(b.open) > maxDepth {
		return Wrong("lists more than %d deep in each other", maxDepth)
	}
	return nil
}

// ended notes that an element has ended, or that only its body is missing.
func (b *Bound) ended() {
	for last := len(b.open) - 1; last >= 0; last-- {
		if b.open[last]--; b.open[last] > 0 {
			return
		}
		b.open = b.open[:last]
	}
}

// Wrong is the error of an answer that no command has.
func Wrong(format string, args ...any) error {
	return fmt.Errorf("the server gave an answer that no command has: "+format, args...)
}
