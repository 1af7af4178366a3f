package fields

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/descriptors/rules"
)

// Object is a mapping with the keys of table.
func Object[T, U any](table []Field[U], at func(*T) *U) Type[T] {
	return Type[T]{ObjectSchema(table), func(r *Reader, t *T, v *rules.Value) { Mapping(r, table, at(t), v) }}
}

// ObjectSchema is the schema of a mapping with the keys of table.
func ObjectSchema[T any](table []Field[T]) Schema {
	properties, required := Schema{}, []string{}
	for _, f := range table {
		property := Schema{"description": f.What}
		for key, value := range f.Type.Schema {
			property[key] = value
		}
		properties[f.Name] = property
		if f.Other != "" {
			properties[f.Other] = property
		}
		if f.Required {
			required = append(required, f.Name)
		}
	}
	s := Schema{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// List is a list of at least one item. what names the items in messages.
func List[T, U any](what string, item Type[U], at func(*T) *[]U) Type[T] {
	return Type[T]{
		Schema{"type": "array", "minItems": 1, "items": item.Schema},
		func(r *Reader, t *T, v *rules.Value) { *at(t) = Items(r, v, what, item) },
	}
}

// Text is a string. Other scalars keep the text in which they are written, and
// null is "".
func Text[T any](at func(*T) *string) Type[T] {
	return Type[T]{
		Schema{"type": []string{"string", "number", "boolean", "null"}},
		func(r *Reader, t *T, v *rules.Value) { *at(t), _ = TextOf(r, v) },
	}
}

// Name is a string that is not empty. Other scalars keep the text in which they are
// written.
func Name[T any](at func(*T) *string) Type[T] {
	return Type[T]{
		Schema{"type": []string{"string", "number", "boolean"}, "minLength": 1},
		func(r *Reader, t *T, v *rules.Value) {
			text, ok := TextOf(r, v)
			if ok && text == "" {
				r.Problem(v.At, "must not be empty")
			}
			*at(t) = text
		},
	}
}

// TextOf is the text of a scalar, "" of null. It reports a problem, and returns
// false, if v is a list or a mapping.
func TextOf(r *Reader, v *rules.Value) (string, bool) {
	switch v.Kind {
	case rules.List, rules.Map:
		r.Problem(v.At, "must be a string, not %s", v.Kind)
		return "", false
	case rules.Null:
		return "", true
	}
	return v.Text, true
}

// IsWord reports whether v is one of words, in the case in which they are written.
// If not it reports a problem.
func IsWord(r *Reader, v *rules.Value, words []string) bool {
	text, ok := TextOf(r, v)
	if ok && !slices.Contains(words, text) {
		r.Problem(v.At, "unknown value %q%s", text, suggest(text, words))
		ok = false
	}
	return ok
}

// suggest is [spelling.Suggest] for words that have capital letters.
func suggest(word string, known []string) string {
	lower := make([]string, len(known))
	for i, k := range known {
		lower[i] = strings.ToLower(k)
	}
	nearest := spelling.Nearest(word, lower)
	if i := slices.Index(lower, max(nearest, strings.ToLower(word))); i >= 0 {
		return `; did you mean "` + known[i] + `"?`
	}
	return "; one of " + strings.Join(known, ", ")
}

// Integer is a whole number from least to most. A string of digits is one, too, as
// in the JSON of protobuf.
func Integer[T any](least, most int64, set func(*T, int64)) Type[T] {
	return Type[T]{
		IntegerSchema(least, most),
		func(r *Reader, t *T, v *rules.Value) {
			if n, ok := IntegerOf(r, v, least, most); ok {
				set(t, n)
			}
		},
	}
}

// IntegerSchema is the schema of a whole number from least to most.
func IntegerSchema(least, most int64) Schema {
	return Schema{"type": []string{"integer", "string"}, "minimum": least, "maximum": most, "pattern": "^[+-]?[0-9]+$"}
}

// IntegerOf is the whole number v. It reports a problem, and returns false, if v is
// none or is out of bounds.
func IntegerOf(r *Reader, v *rules.Value, least, most int64) (int64, bool) {
	var n int64
	var err error
	switch v.Kind {
	case rules.Int: // also 0x10, and 010 for eight
		n, err = strconv.ParseInt(v.Text, 0, 64)
	case rules.String:
		n, err = strconv.ParseInt(v.Text, 10, 64)
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || n < least || n > most {
		r.Problem(v.At, "must be a whole number from %d to %d, not %s", least, most, describe(v))
		return 0, false
	}
	return n, true
}

// Bool is true or false.
func Bool[T any](at func(*T) *bool) Type[T] {
	return Type[T]{
		Schema{"type": "boolean"},
		func(r *Reader, t *T, v *rules.Value) {
			if v.Kind != rules.Bool {
				r.Problem(v.At, "must be true or false, not %s", describe(v))
				return
			}
			*at(t) = slices.Contains([]string{"true", "yes", "y", "on"}, strings.ToLower(v.Text))
		},
	}
}

// durations is the pattern of what time.ParseDuration reads, without a minus.
const durations = `^\+?((([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|0)$`

// Duration is a duration of Go, such as 1m30s, at least 0.
func Duration[T any](at func(*T) *time.Duration) Type[T] {
	return Type[T]{
		Schema{"type": []string{"string", "integer"}, "pattern": durations, "minimum": 0, "maximum": 0}, // of numbers only 0 needs no unit
		func(r *Reader, t *T, v *rules.Value) {
			if d, ok := DurationOf(r, v); ok {
				*at(t) = d
			}
		},
	}
}

// DurationOf is the duration v. It reports a problem, and returns false, if v is
// none or is below 0.
func DurationOf(r *Reader, v *rules.Value) (time.Duration, bool) {
	text, ok := TextOf(r, v)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		r.Problem(v.At, "must be a duration with a unit, such as 100ms, 29s or 1m30s, not %s", describe(v))
		return 0, false
	}
	return d, true
}

// Time is a time of RFC 3339.
func Time[T any](at func(*T) *time.Time) Type[T] {
	return Type[T]{
		Schema{"type": "string", "format": "date-time"},
		func(r *Reader, t *T, v *rules.Value) {
			text, ok := TextOf(r, v)
			if !ok {
				return
			}
			parsed, err := time.Parse(time.RFC3339, text)
			if err != nil {
				r.Problem(v.At, "must be a time such as 2026-03-29T00:59:30Z, not %s", describe(v))
				return
			}
			*at(t) = parsed
		},
	}
}

// describe names a value in a message.
func describe(v *rules.Value) string {
	const most = 40
	switch v.Kind {
	case rules.Null, rules.List, rules.Map:
		return v.Kind.String()
	case rules.String:
		if len(v.Text) > most {
			return fmt.Sprintf("a string of %d bytes", len(v.Text))
		}
		return strconv.Quote(v.Text)
	}
	return v.Text
}
