package descriptors

import (
	"cmp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in the rules, and where.
type Problem struct {
	Position
	Field   string // dotted: rate_limit.unit; may be ""
	Message string // what is wrong and what would be right
}

// Error is file:line:column: field: message.
func (p Problem) Error() string {
	s := p.Position.String() + ": "
	if p.Field != "" {
		s += p.Field + ": "
	}
	return s + p.Message
}

// Problems is every problem of a load, by file and line.
type Problems []Problem

// Error is one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.As each problem.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
