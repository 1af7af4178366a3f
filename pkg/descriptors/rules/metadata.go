package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
)

// metadata reads the metadata of a descriptor or a threshold: any mapping whose values
// structpb.NewStruct takes. A repeated metadata adds to the one before it.
func metadata(at func(target) *map[string]any) fields.Type[target] {
	return fields.Type[target]{
		Name: "a mapping", Schema: Schema{"type": []string{"object", "null"}},
		Set: func(r *fields.Reader, t target, v *document.Value) {
			into := at(t)
			switch {
			case v.Kind == document.Null:
				*into = nil
			case v.Kind != document.Map:
				r.Problem(v.At, "must be a mapping, not %s", v.Describe())
			case len(v.Content) > 0:
				if *into == nil {
					*into = make(map[string]any, len(v.Content)/2)
				}
				// At the top, keys are named by their text: yes is "yes".
				t.metadataMap(v, *into, 1, func(key *document.Value) string {
					if key.Kind == document.Null {
						return ""
					}
					return key.Text
				})
			}
		},
		Append: func(b []byte, t target) []byte { return appendMetadata(b, *at(t)) },
	}
}

// appendMetadata appends a value of metadata as YAML has it on one line, so that different
// values have different texts, 1 and "1" too. Keys are sorted.
func appendMetadata(b []byte, value any) []byte {
	switch v := value.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendMetadata(append(strconv.AppendQuote(b, key), ": "...), v[key])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendMetadata(b, item)
		}
		return append(b, ']')
	case string:
		return strconv.AppendQuote(b, v)
	case nil:
		return append(b, "null"...)
	default:
		return fmt.Append(b, v)
	}
}

func (r *reader) metadataMap(v *document.Value, into map[string]any, depth int, name func(*document.Value) string) {
	for i := 0; i < len(v.Content); i += 2 {
		key := &v.Content[i]
		if key.Kind == document.List || key.Kind == document.Map {
			r.Problem(key.At, "a key must be a scalar, not %s", key.Describe())
			continue
		}
		r.metadataScalar(key)
		r.Enter(key.Text)
		into[name(key)] = r.metadataValue(&v.Content[i+1], depth+1)
		r.Leave()
	}
}

func (r *reader) metadataValue(v *document.Value, depth int) any {
	if depth > MaxDepth {
		r.Detached(func() {
			r.ProblemOf("metadata", v.At, "values stand more than %d deep in each other", MaxDepth)
		})
		return nil
	}
	switch v.Kind {
	case document.Map:
		m := make(map[string]any, len(v.Content)/2)
		// Below the top, keys are named by their meaning: yes is "true".
		r.metadataMap(v, m, depth, func(key *document.Value) string { return fmt.Sprint(key.Meaning()) })
		return m
	case document.List:
		list := make([]any, len(v.Content))
		for i := range v.Content {
			r.EnterItem(i)
			list[i] = r.metadataValue(&v.Content[i], depth+1)
			r.Leave()
		}
		return list
	}
	return r.metadataScalar(v)
}

func (r *reader) metadataScalar(v *document.Value) any {
	switch {
	case v.Kind == document.Wrong:
		r.Problem(v.At, "%s", v.Text)
	case v.Kind == document.String && !utf8.ValidString(v.Text): // of !!binary; it could not be sent
		r.Problem(v.At, "is not valid UTF-8")
	}
	return v.Meaning()
}
