package rules

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"example.org/rls/pkg/descriptors"
)

// File is one source of rules, a file or a resource of a control plane, as data.
type File struct {
	Name string // for messages
	// Root is the mapping with domain and descriptors; nil when there is none.
	Root *Value
	// Problems are the reasons why Root could not be read. Root has no meaning
	// then.
	Problems []Problem
	// Warnings are of things that are odd and have a meaning.
	Warnings []Problem
	// FromMessage says that the rules come from a control plane's message. Such
	// rules have the fields that the message lacks in metadata.rls.
	FromMessage bool
	// ShadowSince has the dates of comments "# shadow since 2026-01-31", by the line
	// that the comment is about: its own, or the next if it stands alone.
	ShadowSince map[int]time.Time
}

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
	At   descriptors.Position
	// Content has the items of a list, and the keys and values of a mapping in
	// turn.
	Content []Value
	is      any // see Scalar
}

// Scalar returns the value that text stands for: nil, bool, int64, uint64,
// float64 or string.
func Scalar(at descriptors.Position, text string, is any) Value {
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
func Text(at descriptors.Position, text string) Value { return Value{Text: text, At: at} }

// meaning is the value that the text of a scalar stands for.
func (v *Value) meaning() any {
	if v.Kind == String {
		return v.Text
	}
	return v.is
}

// Merged reports whether the key at i of a mapping comes from a merge (<<) of an
// anchor. An anchor, and so the keys below it, stands before the mapping that merges
// it.
func (v *Value) Merged(i int) bool {
	at, start := v.Content[i].At, v.At
	return at.Line < start.Line || at.Line == start.Line && at.Column < start.Column
}

// pair finds the last pair of a mapping with the key name; nil when there is
// none.
func (v *Value) pair(name string) (key, value *Value) {
	for i := len(v.Content) - 2; i >= 0; i -= 2 {
		if v.Content[i].Text == name && v.Content[i].Kind == String {
			return &v.Content[i], &v.Content[i+1]
		}
	}
	return nil, nil
}

// at is the position of the value of the key that path names, a.b for the key b in
// the value of the key a, or that of the innermost value on the way.
func (v *Value) at(path string) descriptors.Position {
	name, below, _ := strings.Cut(path, ".")
	if _, value := v.pair(name); value != nil {
		return value.at(below)
	}
	return v.At
}

func (v *Value) has(name string) bool {
	_, value := v.pair(name)
	return value != nil
}

// describe names a value in a message.
func (v *Value) describe() string {
	const most = 40
	switch v.Kind {
	case Null, List, Map:
		return v.Kind.String()
	case String:
		text := v.Text
		if len(text) > most {
			cut := most
			for cut > 0 && !utf8.RuneStart(text[cut]) {
				cut--
			}
			text = text[:cut] + "…"
		}
		return fmt.Sprintf("the string %q", text)
	}
	return v.Text
}
