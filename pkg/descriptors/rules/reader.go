package rules

import (
	"fmt"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/descriptors"
)

// reader turns the values of files into the rules that they mean, and collects their problems.
type reader struct {
	fields.Reader
	opts     *Options
	over     *overlays
	warnings Problems
	limits   limitCache
	domains  map[string]*domain
	turns    descriptors.Turns
	local    []document.Position // of rules with that policy, with Options.ReplicasUnknown
	tables   map[string]read     // by path
	// gathered has, for each value in metadata.rls that is of the domain, the problems of the descriptor
	// that carries it.
	gathered map[*document.Value]Problems

	file  *file // that is being read
	depth int   // of the descriptor that is being read
	found int   // how many of the problems do not belong to that descriptor
	// overridden is above 0 while a value is read that a later value of the
	// same key replaces. Only its types are checked then.
	overridden int
	unknown    int                 // above 0 in a field that envoyproxy/ratelimit does not know
	overlays   []*overlay          // for the domain of the file
	entries    []descriptors.Entry // of the descriptor that is being read, if there are overlays
}

// pair is a key of a mapping and its value.
type pair struct {
	id          int // the field's index in the table
	name, value *document.Value
}

// mapping reads a mapping that stands in a place and sets the fields of t in
// the order in which they are written.
func (r *reader) mapping(v *document.Value, where place, t target) {
	r.turns.Next()
	t.reader = r
	var last [maxFields]int // of each field, its pair counted from 1
	pairs := make([]pair, 0, 16)
	for i := 0; i < len(v.Content); i += 2 {
		name, value := &v.Content[i], &v.Content[i+1]
		id, ok := r.key(name, where)
		if !ok {
			continue
		}
		if before := last[id]; before > 0 {
			first := pairs[before-1]
			switch {
			case first.value.Kind == document.Map && value.Kind == document.Map:
				r.warnings.Add(name.At, join(r.Path(), name.Text), "the key is repeated; keys of the mapping before that this one does not have still count")
			case !v.Merged(first.name):
				r.warnings.Add(name.At, join(r.Path(), name.Text), "the key is repeated; only the last one counts")
			}
		}
		pairs = append(pairs, pair{id, name, value})
		last[id] = len(pairs)
	}
	for i, p := range pairs {
		before := r.overridden
		if last[p.id] > i+1 { // the same key comes again
			r.overridden++
		}
		r.Enter(p.name.Text)
		r.set(p, where, t)
		r.Leave()
		r.overridden = before
	}
}

// key finds the field that a key names.
func (r *reader) key(name *document.Value, where place) (id int, ok bool) {
	if name.Kind != document.String {
		switch {
		case name.Kind == document.Wrong:
			r.Problem(name.At, "%s", name.Text)
		case r.overridden == 0 || name.Kind == document.List || name.Kind == document.Map:
			r.Problem(name.At, "a key must be a string; %s is %s", name.Describe(), name.Kind)
		}
		return 0, false
	}
	id, ok = lookup(name.Text, where)
	switch {
	case ok || r.overridden > 0:
	case where == inFile && name.Text == "overlays":
		r.ProblemOf(name.Text, name.At, "unknown key; overlays stand in a file of their own, which OVERLAY_FILE names, and not among the rules")
	case where == inFile && name.Text == "tests":
		r.ProblemOf(name.Text, name.At, "unknown key; the name of a file with tests of rules must end in _test.yaml")
	default:
		r.ProblemOf(name.Text, name.At, "%s", unknownKey(name.Text, func(f *field) bool { return f.in == where }))
	}
	return id, ok
}

// set sets the field of a pair, unless its value is wrong or has no meaning in
// that place.
func (r *reader) set(p pair, where place, t target) {
	f := &table[p.id]
	if r.opts.ForRatelimit && r.overridden == 0 && r.unknown == 0 && !r.file.source.Overlay && !r.over.files[p.name.At.File] {
		switch {
		case f.own:
			r.warnings.AddLint(ForRatelimit, p.name.At, r.Path(), "is unknown to envoyproxy/ratelimit, which refuses the file; leave it out while both run")
		case f.ignored || f.in != where:
			r.warnings.AddLint(ForRatelimit, p.name.At, r.Path(), "is ignored here by envoyproxy/ratelimit; leave it out while both run")
		}
	}
	if f.own {
		r.unknown++
		defer func() { r.unknown-- }()
	}
	switch {
	case !r.check(f, p.value):
	case f.in == where:
		f.Type.Set(&r.Reader, t, p.value)
	case r.overridden > 0:
	case f.own:
		r.Problem(p.name.At, "has no meaning here; it belongs into %s", homes(f.Name))
	default:
		r.warnings.Add(p.name.At, r.Path(), "has no meaning here and is ignored; it belongs into %s", homes(f.Name))
	}
}

// check reports whether a value is fit for any field: lists are of mappings,
// and numbers are whole.
func (r *reader) check(f *field, v *document.Value) bool {
	if f.free {
		return true
	}
	before := len(r.Problems)
	switch {
	case v.Kind == document.List:
		for i := range v.Content {
			item := &v.Content[i]
			if item.Kind == document.Map || r.overridden > 0 && item.Kind == document.Null {
				continue
			}
			if f.Type.Name != "" && !strings.Contains(fmt.Sprint(f.Type.Schema["type"]), "array") {
				r.Problem(v.At, "must not be a list; want %s", strings.ReplaceAll(f.Type.Name, "`", ""))
				break
			}
			r.EnterItem(i)
			r.Problem(item.At, "must be a mapping, not %s", item.Describe())
			r.Leave()
		}
	case v.Kind == document.Wrong:
		r.Problem(v.At, "%s", v.Text)
	case r.overridden > 0:
	case v.Kind == document.Float && f.whole():
		r.Problem(v.At, "must be a whole number, not %s", v.Text)
	case v.Kind == document.Float && (f.Name == "rollout" || f.Name == "share" || f.Name == "max_borrow"):
		r.Problem(v.At, "must be a percentage with %%, such as %s%%, not %s", v.Text, v.Text)
	case v.Kind == document.Float && f.Name != "at":
		r.Problem(v.At, "%s is a number with a fraction or an exponent; quote it to make it a string: %q", v.Text, v.Text)
	case v.Kind == document.Uint:
		r.Problem(v.At, "%s is larger than any integer; quote it to make it a string: %q", v.Text, v.Text)
	}
	return len(r.Problems) == before
}

// list gives the mappings of a list; null is an empty list.
func (r *reader) list(v *document.Value) []*document.Value {
	if v.Kind == document.Null {
		return nil
	}
	if v.Kind != document.List {
		r.Problem(v.At, "must be a list, not %s", v.Describe())
		return nil
	}
	items := make([]*document.Value, 0, len(v.Content))
	for i := range v.Content {
		if v.Content[i].Kind == document.Map {
			items = append(items, &v.Content[i])
		}
	}
	return items
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
