// Package document has documents as data: values as they were written, with their
// positions, and the problems that are found in them.
package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of a Value.
type Kind uint8

// The kinds of values. An Uint is above the largest int64. Wrong stands for a
// value that could not be read; its text is the problem.
const (
	String Kind = iota
	Null
	Bool
	Int
	Uint
	Float
	List
	Map
	Wrong
)

var kindNames = [...]string{"a string", "null", "a boolean", "an integer", "an integer out of range", "a number with a fraction or exponent", "a list", "a mapping", "invalid"}

// String is the kind in a message, with its article.
func (k Kind) String() string { return kindNames[k] }

// Value is a value as it was written, and where. Whoever reads a Value does not
// change it, so that Values may share their Content.
type Value struct {
	Kind Kind
	Text string // of a scalar, as written
	At   Position
	// Content has the items of a list, and the keys and values of a mapping in
	// turn.
	Content []Value
	is      any // see Scalar
}

// Scalar returns the value that text stands for: nil, bool, int64, uint64,
// float64 or string.
func Scalar(at Position, text string, is any) Value {
	v := Value{Text: text, At: at, is: is}
	switch is.(type) {
	case nil:
		v.Kind = Null
	case bool:
		v.Kind = Bool
	case int64:
		v.Kind = Int
	case uint64:
		v.Kind = Uint
	case float64:
		v.Kind = Float
	}
	return v
}

// Text returns a string.
func Text(at Position, text string) Value { return Value{Text: text, At: at} }

// Meaning is the value that the text of a scalar stands for; nil of lists, mappings
// and null.
func (v *Value) Meaning() any {
	if v.Kind == String {
		return v.Text
	}
	return v.is
}

// Merged reports whether a key of a mapping comes from a merge (<<) of an anchor:
// merged keys have an earlier position than the mapping.
func (v *Value) Merged(key *Value) bool {
	return key.At.Compare(v.At) < 0
}

// Pair finds the last pair of a mapping with the key name. It returns nil if there is
// none.
func (v *Value) Pair(name string) (key, value *Value) {
	for i := len(v.Content) - 2; i >= 0; i -= 2 {
		if v.Content[i].Text == name && v.Content[i].Kind == String {
			return &v.Content[i], &v.Content[i+1]
		}
	}
	return nil, nil
}

// Position is the position of the value of the key that path names, a.b for the key b
// in the value of the key a, or that of the innermost value on the way.
func (v *Value) Position(path string) Position {
	name, below, _ := strings.Cut(path, ".")
	if _, value := v.Pair(name); value != nil {
		return value.Position(below)
	}
	return v.At
}

// Has reports whether a mapping has the key name.
func (v *Value) Has(name string) bool {
	_, value := v.Pair(name)
	return value != nil
}

// Without returns a copy of a mapping that lacks a key, with room for more pairs.
func (v *Value) Without(key string) *Value {
	c := *v
	c.Content = make([]Value, 0, len(v.Content)+8)
	for i := 0; i < len(v.Content); i += 2 {
		if v.Content[i].Text != key {
			c.Content = append(c.Content, v.Content[i], v.Content[i+1])
		}
	}
	return &c
}

// Describe names a value in a message.
func (v *Value) Describe() string {
	const maxLen = 40
	switch v.Kind {
	case Null, List, Map:
		if v.Kind == Map && len(v.Content) == 0 {
			return "an empty mapping"
		}
		return v.Kind.String()
	case String:
		text := v.Text
		if len(text) > maxLen {
			cut := maxLen
			for cut > 0 && !utf8.RuneStart(text[cut]) {
				cut--
			}
			text = text[:cut] + "…"
		}
		return fmt.Sprintf("the string %q", text)
	}
	return v.Text
}

// Problem is one thing that is wrong in a document, and where.
type Problem struct {
	Position
	Field   string `json:"field,omitempty"` // dotted, such as rate_limit.unit; may be ""
	Message string `json:"message"`         // the fault, and what would be right
	Lint    Lint   `json:"lint,omitempty"`  // the name of a warning that has one, else ""
	More    int    `json:"-"`               // above 0, it stands for so many others of the file, and its message says so
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

// Error is one problem a line, as [Problems.Told] has them.
func (ps Problems) Error() string {
	ps = ps.Told()
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Add appends a problem of a field, which may be "".
func (ps *Problems) Add(at Position, field, format string, args ...any) {
	*ps = append(*ps, Problem{Position: at, Field: field, Message: fmt.Sprintf(format, args...)})
}

// AddLint appends a warning that has a name.
func (ps *Problems) AddLint(name Lint, at Position, field, format string, args ...any) {
	*ps = append(*ps, Problem{Position: at, Field: field, Message: fmt.Sprintf(format, args...), Lint: name})
}

// MaxTold is how many problems of a file are told.
const MaxTold = 100

// Told returns, for each file, as many problems as are told, and one that says how many more there
// are. The problems of a file stand together.
func (ps Problems) Told() (told Problems) {
	for len(ps) > 0 {
		shown, more := 0, 0
		file := ps[0].File
		for ; len(ps) > 0 && ps[0].File == file; ps = ps[1:] {
			if p := ps[0]; p.More == 0 && shown < MaxTold {
				told = append(told, p)
				shown++
			} else {
				more += max(1, p.More)
			}
		}
		if more > 0 {
			told.AddMore(told[len(told)-1].Position, more)
		}
	}
	return told
}

// AddMore appends a problem that stands for so many others of the file.
func (ps *Problems) AddMore(at Position, more int) {
	ps.Add(at, "", "%d more in this file are not shown", more)
	(*ps)[len(*ps)-1].More = more
}

// Sort sorts the problems by file, line and column.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int { return a.Position.Compare(b.Position) })
}

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

// Annotation is the line of an annotation of a workflow of GitHub, which a pull request shows at the
// line of the file. The kind is error, warning or notice. A column of 0 is unknown.
func Annotation(kind, file string, line, column int, message string) string {
	at := fmt.Sprintf("file=%s,line=%d", annotationProperty.Replace(file), line)
	if column > 0 {
		at += fmt.Sprintf(",col=%d", column)
	}
	return fmt.Sprintf("::%s %s::%s\n", kind, at, annotationText.Replace(strings.TrimSpace(message)))
}

// They escape the bytes that would end an annotation or one of its properties.
var (
	annotationText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	annotationProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
