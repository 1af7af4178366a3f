package rules

import (
	"slices"
	"strings"

	"example.org/rls/pkg/descriptors"
)

// Problem is one thing that is wrong in the rules, and where.
type Problem struct {
	descriptors.Position
	Field   string // dotted, such as rate_limit.unit; may be ""
	Message string // the fault, and what would be right
	Lint    Lint   // the name of a warning that has one, else ""
}

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

// Problems has every problem of a load, by file, line and column.
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
	slices.SortStableFunc(ps, func(a, b Problem) int { return order(a.Position, b.Position) })
}

// order compares positions by file, line and column.
func order(a, b descriptors.Position) int {
	return a.Compare(b)
}
