package document

import (
	"cmp"
	"strconv"
)

// Position is a place in a document: file, line and column, which count from 1,
// or the path of a descriptor in a message, without line and column.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String is file:line:column.
func (p Position) String() string {
	s := p.File
	for _, n := range []int{p.Line, p.Column} {
		if n > 0 {
			s += ":" + strconv.Itoa(n)
		}
	}
	return s
}

// Place is file:line, or the path of a descriptor in a message.
func (p Position) Place() string {
	p.Column = 0
	return p.String()
}

// Compare orders positions by file, line and column.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}
