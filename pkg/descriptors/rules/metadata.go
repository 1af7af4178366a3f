package rules

import (
	"fmt"
	"unicode/utf8"
)

// metadata reads a descriptor's metadata: any mapping whose values
// structpb.NewStruct takes. A repeated metadata adds to the one before it.
var metadata = setter{typ: "a mapping", schema: metadataSchema, free: true, set: func(r *reader, t target, v *Value, path string) {
	into := &t.descriptor.rule.Metadata
	switch {
	case v.Kind == Null:
		*into = nil
	case v.Kind != Map:
		r.problem(v.At, path, "must be a mapping, not %s", v.describe())
	case len(v.Content) > 0:
		if *into == nil {
			*into = make(map[string]any, len(v.Content)/2)
		}
		// At the top, keys are named by their text: yes is "yes".
		r.metadataMap(v, path, *into, 1, func(key *Value) string {
			if key.Kind == Null {
				return ""
			}
			return key.Text
		})
	}
}}

func (r *reader) metadataMap(v *Value, path string, into map[string]any, depth int, name func(*Value) string) {
	for i := 0; i < len(v.Content); i += 2 {
		key := &v.Content[i]
		if key.Kind == List || key.Kind == Map {
			r.problem(key.At, path, "a key must be a scalar, not %s", key.describe())
			continue
		}
		r.metadataScalar(key, path)
		into[name(key)] = r.metadataValue(&v.Content[i+1], join(path, key.Text), depth+1)
	}
}

func (r *reader) metadataValue(v *Value, path string, depth int) any {
	if depth > MaxDepth {
		r.problem(v.At, "metadata", "values stand more than %d deep in each other", MaxDepth)
		return nil
	}
	switch v.Kind {
	case Map:
		m := make(map[string]any, len(v.Content)/2)
		// Below the top, keys are named by their meaning: yes is "true".
		r.metadataMap(v, path, m, depth, func(key *Value) string { return fmt.Sprint(key.meaning()) })
		return m
	case List:
		list := make([]any, len(v.Content))
		for i := range v.Content {
			list[i] = r.metadataValue(&v.Content[i], fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
		return list
	}
	return r.metadataScalar(v, path)
}

func (r *reader) metadataScalar(v *Value, path string) any {
	switch {
	case v.Kind == Wrong:
		r.problem(v.At, path, "%s", v.Text)
	case v.Kind == String && !utf8.ValidString(v.Text): // of !!binary; it could not be sent
		r.problem(v.At, path, "is not valid UTF-8")
	}
	return v.meaning()
}
