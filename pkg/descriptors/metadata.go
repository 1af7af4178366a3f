package descriptors

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// metadata reads a descriptor's metadata: any mapping whose values
// structpb.NewStruct takes. A repeated metadata adds to the one before.
func (r *reader) metadata(n *yaml.Node, field string, into *map[string]any) {
	if isNull(n) {
		*into = nil
		return
	}
	if n.Kind != yaml.MappingNode {
		r.problem(n, field, "must be a mapping, not %s", describe(n))
		return
	}
	if *into == nil && len(n.Content) > 0 {
		*into = make(map[string]any, len(n.Content)/2)
	}
	content := r.flatten(n, field)
	for i := 0; i < len(content); i += 2 {
		name := target(content[i])
		if name.Kind != yaml.ScalarNode {
			r.problem(name, field, "a key must be a scalar, not %s", describe(name))
			continue
		}
		key := ""
		if r.scalarValue(name, field) != nil {
			key = strings.Clone(readScalar(name).text)
		}
		(*into)[key] = r.any(target(content[i+1]), join(field, key))
	}
}

// any reads a value of metadata.
func (r *reader) any(n *yaml.Node, field string) any {
	switch n.Kind {
	case yaml.MappingNode:
		content := r.flatten(n, field)
		m := make(map[string]any, len(content)/2)
		for i := 0; i < len(content); i += 2 {
			name := target(content[i])
			if name.Kind != yaml.ScalarNode {
				r.problem(name, field, "a key must be a scalar, not %s", describe(name))
				continue
			}
			// Below the top, keys are named by what they mean: yes is "true".
			key := fmt.Sprint(r.scalarValue(name, field))
			m[key] = r.any(target(content[i+1]), join(field, key))
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = r.any(target(item), fmt.Sprintf("%s[%d]", field, i))
		}
		return list
	}
	return r.scalarValue(n, field)
}

func (r *reader) scalarValue(n *yaml.Node, field string) any {
	s := readScalar(n)
	switch s.kind {
	case kindNull:
		return nil
	case kindBool:
		return s.bool
	case kindInt:
		return s.int
	case kindUint:
		return s.uint
	case kindFloat:
		return s.float
	case kindInvalid:
		r.problem(n, field, "%q contradicts its tag %s", n.Value, n.Tag)
	}
	if !utf8.ValidString(s.text) { // of !!binary; it could not be sent
		r.problem(n, field, "is not valid UTF-8")
	}
	return strings.Clone(s.text)
}
