package rules

import (
	"fmt"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/turns"
)

// reader turns the values of one file into the rules that they mean, and
// collects their problems.
type reader struct {
	opts     *Options
	file     *File
	problems Problems
	placed   int // how many of the problems belong to a descriptor
	warnings Problems
	limits   limitCache
	depth    int // of the descriptor that is being read
	// overridden is above 0 while a value is read that a later value of the
	// same key replaces. Only its types are checked then.
	overridden int
	pairs      []pair // of the mappings that are being read, a stack
	turns      turns.Turns

	charged   *descriptors.Charge // of the domain, found in metadata.rls
	chargedAt descriptors.Position
}

func (r *reader) problem(at descriptors.Position, path, format string, args ...any) {
	r.problems = append(r.problems, Problem{Position: at, Field: path, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) warn(at descriptors.Position, path, format string, args ...any) {
	r.warnings = append(r.warnings, Problem{Position: at, Field: path, Message: fmt.Sprintf(format, args...)})
}

// pair is a key of a mapping and its value.
type pair struct {
	id          int // the field's index in fields
	name, value *Value
	overridden  bool // the same key comes again
	merged      bool
}

// mapping reads a mapping that stands in a place and sets the fields of t in
// the order in which they are written. path names the mapping.
func (r *reader) mapping(v *Value, where place, path string, t target) {
	r.turns.Next()
	var last [maxFields]int // of each field, its pair counted from 1
	base := len(r.pairs)
	for i := 0; i < len(v.Content); i += 2 {
		name, value := &v.Content[i], &v.Content[i+1]
		id, ok := r.key(name, where, path)
		if !ok {
			continue
		}
		r.pairs = append(r.pairs, pair{id, name, value, false, v.Merged(i)})
		if before := last[id]; before > 0 {
			first := &r.pairs[before-1]
			first.overridden = true
			switch {
			case first.value.Kind == Map && value.Kind == Map:
				r.warn(name.At, join(path, name.Text), "the key is repeated; keys of the mapping before that this one does not have still count")
			case !first.merged:
				r.warn(name.At, join(path, name.Text), "the key is repeated; only the last one counts")
			}
		}
		last[id] = len(r.pairs)
	}
	end := len(r.pairs)
	for i := base; i < end; i++ {
		p := r.pairs[i]
		if p.overridden {
			r.overridden++
		}
		r.set(p, where, join(path, p.name.Text), t)
		if p.overridden {
			r.overridden--
		}
	}
	r.pairs = r.pairs[:base]
}

// key finds the field that a key names.
func (r *reader) key(name *Value, where place, path string) (id int, ok bool) {
	if name.Kind != String {
		switch {
		case name.Kind == Wrong:
			r.problem(name.At, path, "%s", name.Text)
		case r.overridden == 0 || name.Kind == List || name.Kind == Map:
			r.problem(name.At, path, "a key must be a string; %s is %s", name.describe(), name.Kind)
		}
		return 0, false
	}
	id, ok = lookup(name.Text, where)
	switch {
	case ok || r.overridden > 0:
	case where == inFile && name.Text == "tests":
		r.problem(name.At, name.Text, "unknown key; the name of a file with tests of rules must end in _test.yaml")
	default:
		r.problem(name.At, join(path, name.Text), "%s", unknownKey(name.Text, func(f *field) bool { return where == anywhere || f.in == where }))
	}
	return id, ok
}

// set sets the field of a pair, unless its value is wrong or has no meaning in
// that place.
func (r *reader) set(p pair, where place, path string, t target) {
	f := &fields[p.id]
	switch {
	case !r.check(f, p.value, path):
	case f.in == where:
		f.value.set(r, t, p.value, path)
	case where == anywhere || r.overridden > 0:
		r.ignored(f, p.value, path)
	case f.own:
		r.problem(p.name.At, path, "has no meaning here; it belongs into %s", homes(f.name))
		r.ignored(f, p.value, path)
	default:
		r.warn(p.name.At, path, "has no meaning here and is ignored; it belongs into %s", homes(f.name))
		r.ignored(f, p.value, path)
	}
}

// ignored checks the keys inside a value that has no meaning where it stands.
func (r *reader) ignored(f *field, v *Value, path string) {
	if f.value.free || r.overridden > 0 {
		return
	}
	switch v.Kind {
	case Map:
		r.mapping(v, anywhere, path, target{})
	case List:
		for i := range v.Content {
			r.mapping(&v.Content[i], anywhere, path, target{})
		}
	}
}

// check reports whether a value is fit for any field: lists are of mappings,
// and numbers are whole.
func (r *reader) check(f *field, v *Value, path string) bool {
	if f.value.free {
		return true
	}
	before := len(r.problems)
	switch {
	case v.Kind == List:
		for i := range v.Content {
			item := &v.Content[i]
			if item.Kind != Map && !(r.overridden > 0 && item.Kind == Null) {
				r.problem(item.At, fmt.Sprintf("%s[%d]", path, i), "must be a mapping, not %s", item.describe())
			}
		}
	case v.Kind == Wrong:
		r.problem(v.At, path, "%s", v.Text)
	case r.overridden > 0:
	case v.Kind == Float && f.name == "requests_per_unit":
		r.problem(v.At, path, "must be a whole number, not %s", v.Text)
	case v.Kind == Float:
		r.problem(v.At, path, "%s is a number with a fraction or an exponent; quote it to make it a string: %q", v.Text, v.Text)
	case v.Kind == Uint:
		r.problem(v.At, path, "%s is larger than any integer; quote it to make it a string: %q", v.Text, v.Text)
	}
	return len(r.problems) == before
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
