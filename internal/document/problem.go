package document

import (
	"slices"
	"strings"

	"example.org/rls/pkg/descriptors"
)

// Problem is one thing that is wrong in a document, and where.
type Problem struct {
	descriptors.Position
	Field   string // dotted, such as rate_limit.unit; may be ""
	Message string // the fault, and what would be right
	Lint    Lint   // the name of a warning that has one, else ""
}

// Lint is the name of a warning about a document that has a meaning, which is hardly
// the meaning that its author had in mind.
type Lint string

// Error is file:line:column: field: message, and the name of a lint: [name].
func (p Problem) Error() string {
	s := p.Position.String() + ": "
	if p.Field != "" {
		s += p.Field + ": "
	}
	s += p.Message
	if p.Lint != "" {
		s += " [" + string(p.Lint) + "]"
	}
	return s
}

// Problems are the problems of a document, or of several.
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

// Sort sorts the problems by file, line and column.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int { return a.Position.Compare(b.Position) })
}
