package rules

import (
	"maps"
	"slices"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/descriptors"
)

// naming is a key of a file whose value is a mapping of names to limits.
type naming struct {
	one string // what a name stands for, such as pool
	// reserved is no name that a file can give; "" if there is none.
	reserved string
	read     func(r *reader, n *named, v *document.Value)
}

// named is one item of such a mapping, as written.
type named struct {
	name, path string
	at         document.Position
	rule       *descriptors.Rule // has the limits; nil if there is a problem
	compiled   *descriptors.Rule // of a plan: as rule, also if there is a problem; nil if all limits have one
	written    []*limit          // the limits of compiled
	used       bool              // a limit borrows from it
}

// field is the type of the key.
func (k *naming) field(schema Schema, appended func(b []byte, t target) []byte) fields.Type[target] {
	return fields.Type[target]{
		Name:   "a mapping of limits",
		Schema: Schema{"type": []string{"object", "null"}, "additionalProperties": schema, "propertyNames": Schema{"minLength": 1, "not": Schema{"const": k.reserved}}},
		Set:    func(_ *fields.Reader, t target, v *document.Value) { t.readNames(k, v) },
		Append: appended,
	}
}

// readNames reads the value of the key.
func (r *reader) readNames(k *naming, v *document.Value) {
	switch v.Kind {
	case document.Null:
		return
	case document.Wrong:
		r.Problem(v.At, "%s", v.Text)
		return
	case document.Map:
	default:
		r.Problem(v.At, "must be a mapping of names and limits, not %s", v.Describe())
		return
	}
	for i := 0; i < len(v.Content); i += 2 {
		name, value := &v.Content[i], &v.Content[i+1]
		if last, _ := v.Pair(name.Text); v.Merged(name) && last != nil && last != name {
			continue // a key of the mapping takes the place of the merged one
		}
		if name.Kind != document.String || name.Text == "" {
			r.Problem(name.At, "the name of a %s must be a string that is not empty, not %s", k.one, name.Describe())
			continue
		}
		r.Enter(name.Text)
		k.read(r, &named{name: name.Text, path: r.Path(), at: name.At}, value)
		r.Leave()
	}
}

// collection has the items of one key of a domain, by name.
type collection map[string]*named

// add adds items of a file to those of its domain.
func (all collection) add(r *reader, k *naming, read []*named) {
	for _, n := range read {
		switch first := all[n.name]; {
		case first != nil:
			r.Problems.Add(n.at, n.path, "%q is already a %s of the domain in %s; give it another name", n.name, k.one, first.at)
		case n.name != k.reserved:
			all[n.name] = n
		}
	}
}

// suggest is the end of a message about a name that the domain does not have.
func (all collection) suggest(name string, more ...string) string {
	return spelling.Suggest(name, append(slices.Sorted(maps.Keys(all)), more...))
}
