// Package fields reads mappings of a document into Go values, each by a table of
// its keys, and makes a JSON Schema and documents of the same table.
//
// The package promises that every problem is reported, with its position and with
// what would be right. [Mapping] reads a mapping in which every key must be known
// and written once; pkg/descriptors/rules reads the mappings of rules as
// envoyproxy/ratelimit does. Reading text is left to pkg/descriptors/yaml.
package fields

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"example.org/rls/internal/document"
	"example.org/rls/internal/spelling"
)

// Reader collects the problems of a document. The zero Reader is ready for use.
type Reader struct {
	Problems document.Problems
	path     []step // to the value that is read
}

// step is a key of a mapping, or an item of a list.
type step struct {
	key  string
	item int // the index of an item + 1; 0 for a key
}

// Enter says that the value of a key is read until Leave.
func (r *Reader) Enter(key string) { r.path = append(r.path, step{key: key}) }

// EnterItem says that the item i of a list is read until Leave.
func (r *Reader) EnterItem(i int) { r.path = append(r.path, step{item: i + 1}) }

// Leave leaves the value of the last Enter or EnterItem.
func (r *Reader) Leave() { r.path = r.path[:len(r.path)-1] }

// Detached calls read, and leaves the keys and items around it out of its paths.
func (r *Reader) Detached(read func()) {
	outside := r.path
	r.path = r.path[len(r.path):]
	read()
	r.path = outside
}

// Path names the value that is read, as in a.b[1].
func (r *Reader) Path() string {
	if len(r.path) == 1 && r.path[0].item == 0 {
		return r.path[0].key
	}
	var b strings.Builder
	for _, s := range r.path {
		switch {
		case s.item > 0:
			fmt.Fprintf(&b, "[%d]", s.item-1)
		case b.Len() > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	return b.String()
}

// Problem reports a fault of the value that is read.
func (r *Reader) Problem(at document.Position, format string, args ...any) {
	r.Problems.Add(at, r.Path(), format, args...)
}

// ProblemOf reports a fault of the key name of the value that is read.
func (r *Reader) ProblemOf(name string, at document.Position, format string, args ...any) {
	r.Enter(name)
	r.Problem(at, format, args...)
	r.Leave()
}

// Field is one key of a mapping. T is where the values of the mapping go, such as a
// pointer to a struct.
type Field[T any] struct {
	Name  string
	Other string // another spelling of Name that means the same; "" if there is none
	// For documents: the meaning in a few words, and the value that holds without the key. For
	// editors also Note, the conditions and effects. Default and Note may be "".
	What, Default, Note string
	// Required: a mapping without the key is a problem.
	Required bool
	// Needs is the schema of a mapping in which the field is neither false nor null, for
	// conditions on other keys; nil without conditions. Editors use it; the code that
	// reads the mapping checks the conditions itself.
	Needs Schema
	Type  Type[T]
}

// Type is a kind of value, and the place in a T where such a value goes.
type Type[T any] struct {
	Name   string // for documents
	Schema Schema
	Set    func(r *Reader, t T, v *document.Value)
	// Append appends the value in t to b. It is nil for values that are mappings or
	// lists with tables of their own.
	Append func(b []byte, t T) []byte
}

// Mapping reads v, a mapping with the keys of table, into t.
func Mapping[T any](r *Reader, table []Field[T], t T, v *document.Value) {
	if v.Kind != document.Map {
		r.Problem(v.At, "must be a mapping with %s, not %s", strings.Join(names(table), ", "), v.Kind)
		return
	}
	var seen [maxFields]int // of each field, the index of its value, or 0
	for i := 0; i < len(v.Content); i += 2 {
		name := &v.Content[i]
		id := index(table, name.Text)
		switch {
		case name.Kind == document.Wrong:
			r.Problem(name.At, "%s", name.Text)
		case id < 0:
			r.ProblemOf(name.Text, name.At, "unknown key%s", spelling.Suggest(name.Text, names(table)))
		case seen[id] > 0 && !v.Merged(&v.Content[seen[id]-1]):
			r.ProblemOf(name.Text, name.At, "the key is repeated; write it once")
		default:
			seen[id] = i + 1
		}
	}
	for id := range table {
		switch f := &table[id]; {
		case seen[id] > 0:
			r.Enter(v.Content[seen[id]-1].Text)
			read(r, f.Type, t, &v.Content[seen[id]])
			r.Leave()
		case f.Required:
			r.ProblemOf(f.Name, v.At, "is missing; %s", f.What)
		}
	}
}

// read sets the value of t that f is for to v.
func read[T any](r *Reader, f Type[T], t T, v *document.Value) {
	if v.Kind == document.Wrong {
		r.Problem(v.At, "%s", v.Text)
		return
	}
	f.Set(r, t, v)
}

const maxFields = 16 // of a table, at most

// index is the index of the field that a key names, -1 if there is none.
func index[T any](table []Field[T], name string) int {
	return slices.IndexFunc(table, func(f Field[T]) bool { return name != "" && (f.Name == name || f.Other == name) })
}

func names[T any](table []Field[T]) []string {
	list := make([]string, len(table))
	for i := range table {
		list[i] = table[i].Name
	}
	return list
}

// Schema is a JSON Schema.
type Schema = map[string]any

// ObjectSchema is the schema of a mapping with the keys of table.
func ObjectSchema[T any](table []Field[T]) Schema {
	properties, required, conditions := Schema{}, []string{}, []Schema{}
	for i := range table {
		f := &table[i]
		properties[f.Name] = f.property()
		if f.Other != "" {
			properties[f.Other] = properties[f.Name]
		}
		if f.Required {
			required = append(required, f.Name)
		}
		if f.Needs != nil {
			on := Schema{"not": Schema{"enum": []any{false, nil}}}
			conditions = append(conditions, Schema{"if": Schema{"required": []string{f.Name}, "properties": Schema{f.Name: on}}, "then": f.Needs})
		}
	}
	s := Schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	if len(conditions) > 0 {
		s["allOf"] = conditions
	}
	return s
}

// property is the schema of the field's value, with a text for editors.
func (f *Field[T]) property() Schema {
	text := f.What
	if f.Default != "" {
		text += ". Default: " + f.Default
	}
	if f.Note != "" {
		text += ". Note: " + f.Note
	}
	property := Schema{"description": text}
	for name, value := range f.Type.Schema {
		property[name] = value
	}
	return property
}

// InAnyCase is the pattern of texts that are one of words, which have lower-case
// letters and hyphens only, in any case.
func InAnyCase(words []string) string {
	patterns := make([]string, len(words))
	for i, word := range words {
		for _, letter := range word {
			if upper := unicode.ToUpper(letter); upper != letter {
				patterns[i] += fmt.Sprintf("[%c%c]", upper, letter)
			} else {
				patterns[i] += string(letter)
			}
		}
	}
	return strings.Join(patterns, "|")
}
