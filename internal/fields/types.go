package fields

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/internal/spelling"
)

// Form is a way to write a V.
type Form[V any] struct {
	Name   string // for documents
	Schema Schema
	// Read returns the V that v stands for. If v stands for no V, it reports a problem
	// and returns false.
	Read func(r *Reader, v *document.Value) (V, bool)
}

// At is the type of a value of that form that goes to at(t). A wrong value leaves
// *at(t) as it is.
func At[T, V any](form Form[V], at func(T) *V) Type[T] {
	t := With(form, func(t T, x V) { *at(t) = x })
	t.Append = func(b []byte, t T) []byte {
		switch x := any(at(t)).(type) {
		case *string:
			return strconv.AppendQuote(b, *x)
		case *bool:
			return strconv.AppendBool(b, *x)
		case *uint32:
			return strconv.AppendUint(b, uint64(*x), 10)
		case fmt.Stringer:
			return append(b, x.String()...)
		}
		return fmt.Append(b, *at(t))
	}
	return t
}

// With is the type of a value of that form with which set is called.
func With[T, V any](form Form[V], set func(T, V)) Type[T] {
	return Type[T]{Name: form.Name, Schema: form.Schema, Set: func(r *Reader, t T, v *document.Value) {
		if x, ok := form.Read(r, v); ok {
			set(t, x)
		}
	}}
}

// Object is a mapping with the keys of table.
func Object[T, U any](table []Field[U], at func(T) U) Type[T] {
	return Type[T]{Schema: ObjectSchema(table), Set: func(r *Reader, t T, v *document.Value) { Mapping(r, table, at(t), v) }}
}

// List is a list of at least one item. what names the items in messages.
func List[U any](what string, item Type[*U]) Form[[]U] {
	return Form[[]U]{
		Schema: Schema{"type": "array", "minItems": 1, "items": item.Schema},
		Read: func(r *Reader, v *document.Value) ([]U, bool) {
			if v.Kind != document.List {
				r.Problem(v.At, "must be a list of %s, not %s", what, v.Kind)
				return nil, false
			}
			if len(v.Content) == 0 {
				r.Problem(v.At, "must not be empty; it is a list of %s", what)
			}
			list := make([]U, len(v.Content))
			for i := range v.Content {
				r.EnterItem(i)
				read(r, item, &list[i], &v.Content[i])
				r.Leave()
			}
			return list, true
		},
	}
}

// Text is a string. Other scalars keep the text in which they are written, and
// null is "".
var Text = Form[string]{
	Schema: Schema{"type": []string{"string", "number", "boolean", "null"}},
	Read: func(r *Reader, v *document.Value) (string, bool) {
		switch v.Kind {
		case document.List, document.Map:
			r.Problem(v.At, "must be a string, not %s", v.Kind)
			return "", false
		case document.Null:
			return "", true
		}
		return v.Text, true
	},
}

// Name is a string that is not empty. Other scalars keep the text in which they are
// written.
var Name = Form[string]{
	Schema: Schema{"type": []string{"string", "number", "boolean"}, "minLength": 1},
	Read: func(r *Reader, v *document.Value) (string, bool) {
		text, ok := Text.Read(r, v)
		if ok && text == "" {
			r.Problem(v.At, "must not be empty")
		}
		return text, ok
	},
}

// Word is one of words, in the case in which they are written. A message does not suggest "".
func Word(words []string) Form[string] {
	return Form[string]{
		Schema: Schema{"enum": words},
		Read: func(r *Reader, v *document.Value) (string, bool) {
			text, ok := Text.Read(r, v)
			if ok && !slices.Contains(words, text) {
				r.Problem(v.At, "unknown value %q%s", text, spelling.Suggest(text, slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "" })))
				ok = false
			}
			return text, ok
		},
	}
}

// Integer is a whole number from low to high. A string of digits is one, too, as in
// the JSON of protobuf.
func Integer[N int | int64 | uint32 | uint64](low, high int64) Form[N] {
	return scalar(
		Schema{"type": []string{"integer", "string"}, "minimum": low, "maximum": high, "pattern": "^[+-]?[0-9]+$"},
		fmt.Sprintf("a whole number from %d to %d", low, high),
		func(v *document.Value) (N, bool) {
			var n int64
			err := strconv.ErrSyntax
			switch v.Kind {
			case document.Int: // also 0x10, and 010 for eight
				n, err = strconv.ParseInt(v.Text, 0, 64)
			case document.String:
				n, err = strconv.ParseInt(v.Text, 10, 64)
			}
			return N(n), err == nil && n >= low && n <= high
		})
}

// Bool is true or false.
var Bool = scalar(Schema{"type": "boolean"}, "true or false", func(v *document.Value) (bool, bool) {
	return v.Meaning() == true, v.Kind == document.Bool
})

// durations is the pattern of the texts that time.ParseDuration reads, without a minus.
const durations = `^\+?((([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|0)$`

// Duration is a duration of Go, such as 1m30s, at least 0.
var Duration = textual(scalar(
	Schema{"type": []string{"string", "integer"}, "pattern": durations, "minimum": 0, "maximum": 0}, // of numbers only 0 needs no unit
	"a duration with a unit, such as 100ms, 29s or 1m30s",
	func(v *document.Value) (time.Duration, bool) {
		d, err := time.ParseDuration(v.Text)
		return d, err == nil && d >= 0
	}))

// Time is a time of RFC 3339.
var Time = textual(scalar(Schema{"type": "string", "format": "date-time"}, "a time such as 2026-03-29T00:59:30Z",
	func(v *document.Value) (time.Time, bool) {
		t, err := time.Parse(time.RFC3339, v.Text)
		return t, err == nil
	}))

// scalar is a value that parse reads. want names it in messages.
func scalar[V any](schema Schema, want string, parse func(*document.Value) (V, bool)) Form[V] {
	return Form[V]{Schema: schema, Read: func(r *Reader, v *document.Value) (V, bool) {
		x, ok := parse(v)
		if !ok {
			r.Problem(v.At, "must be %s, not %s", want, describe(v))
		}
		return x, ok
	}}
}

// textual is a form whose values are texts.
func textual[V any](form Form[V]) Form[V] {
	read := form.Read
	form.Read = func(r *Reader, v *document.Value) (x V, ok bool) {
		if _, ok = Text.Read(r, v); ok {
			return read(r, v)
		}
		return x, false
	}
	return form
}

// describe names a value in a message.
func describe(v *document.Value) string {
	const maxLen = 40
	if v.Kind == document.String && len(v.Text) > maxLen {
		return fmt.Sprintf("a string of %d bytes", len(v.Text))
	}
	return strings.TrimPrefix(v.Describe(), "the string ")
}
