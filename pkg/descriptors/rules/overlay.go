package rules

import (
	"fmt"
	"slices"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/descriptors"
	matches "example.org/rls/pkg/descriptors/match"
)

// overlays are the overlays of all files, in the order in which they are laid.
type overlays struct {
	list  []*overlay
	plans []*named                    // of the overlays' files; every domain has them
	files map[string]bool             // the names of their files
	laid  map[string]descriptors.Laid // limits with the same fields share them
}

// overlay is one item of overlays: fields, and the limits that get them.
type overlay struct {
	at     document.Position
	field  string    // overlays[0]
	domain string    // a pattern; "" is every domain
	path   []element // nil is every rule
	name   string    // a pattern; "" is every limit
	force  bool
	set    *document.Value

	inDomain, used bool // a domain, a limit matched
}

// element is one item of path: the patterns of a key and of a value.
type element struct{ key, value string }

// Tables of the keys of overlays.
var (
	overlayFile = []fields.Field[*reader]{
		{Name: "overlays", Required: true, What: "the list of overlays", Type: fields.Type[*reader]{
			Schema: Schema{"type": []string{"array", "null"}, "items": anOverlay.Schema},
			Set: func(r *fields.Reader, t *reader, v *document.Value) {
				if v.Kind == document.Null || v.Kind == document.List && len(v.Content) == 0 { // it ends overlays
					return
				}
				list, _ := fields.List("overlays", anOverlay).Read(r, v)
				for i := range list {
					t.over.list = append(t.over.list, &list[i])
				}
			},
		}},
		{Name: "plans", What: "plans that `set` can name, beside those of the domain, which go first", Type: fields.Type[*reader]{
			Schema: plans.Schema, Set: func(_ *fields.Reader, t *reader, v *document.Value) { t.readNames(&planNames, v) },
		}},
	}
	anOverlay = fields.Type[*overlay]{Schema: overlaySchema(), Set: func(r *fields.Reader, o *overlay, v *document.Value) {
		o.at, o.field = v.At, r.Path()
		for _, name := range names(settable) {
			if key, _ := v.Pair(name); key != nil {
				r.ProblemOf(name, key.At, "belongs into set")
				v = v.Without(name)
			}
		}
		fields.Mapping(r, overlayFields, o, v)
		if v.Kind == document.Map && !v.Has("domain") && !v.Has("path") && !v.Has("name") {
			r.Problem(v.At, "has neither domain nor path nor name, which say over which limits it is laid; domain: \"*\" is over all")
		}
	}}
	overlayFields = []fields.Field[*overlay]{
		{Name: "domain", What: "the pattern of the domains", Type: fields.At(fields.Name, func(o *overlay) *string { return &o.domain })},
		{Name: "path", What: "the patterns of the first descriptors", Type: fields.At(fields.List("keys and values", fields.Object(elementFields, func(e *element) *element { return e })), func(o *overlay) *[]element { return &o.path })},
		{Name: "name", What: "the pattern of the limits' names", Type: fields.At(fields.Name, func(o *overlay) *string { return &o.name })},
		{Name: "set", Required: true, What: "a mapping of the fields that the limits get", Type: fields.Type[*overlay]{
			Schema: Schema{"$ref": "#/$defs/set"}, Set: func(_ *fields.Reader, o *overlay, v *document.Value) { o.set = v },
		}},
		{Name: "force", What: "whether fields that a rule has written are replaced", Type: fields.At(fields.Bool, func(o *overlay) *bool { return &o.force })},
	}
	elementFields = []fields.Field[*element]{
		{Name: "key", Required: true, What: "the pattern of a descriptor's key", Type: fields.At(fields.Name, func(e *element) *string { return &e.key })},
		{Name: "value", What: "the pattern of its value", Type: fields.At(fields.Text, func(e *element) *string { return &e.value })},
	}
)

// settable reports whether overlays can set a field. They choose limits by name, and leave
// unlimited rules as they are.
func settable(f *field) bool { return f.in == inLimit && f.Name != "name" && f.Name != "unlimited" }

// splitOverlays reads the overlays among files, and returns the other files.
func (r *reader) splitOverlays(all []*File) (files []file) {
	for _, f := range all {
		own := file{source: f}
		if r.file = &own; !f.Overlay {
			files = append(files, own)
			continue
		}
		r.Problems, r.warnings = append(r.Problems, f.Problems...), append(r.warnings, f.Warnings...)
		if len(f.Problems) == 0 && f.Root != nil && f.Root.Kind != document.Null {
			r.readOverlays()
		}
		r.over.files[f.Name] = true
		r.over.plans = append(r.over.plans, own.plans...)
	}
	if len(r.Problems) > 0 {
		r.over.list = nil
	}
	return files
}

// readOverlays reads a file of overlays, and checks each field of each set for itself.
func (r *reader) readOverlays() {
	before := len(r.over.list)
	fields.Mapping(&r.Reader, overlayFile, r, r.file.source.Root)
	for _, o := range r.over.list[before:] {
		switch v := o.set; {
		case v == nil: // reported
		case v.Kind != document.Map || len(v.Content) == 0:
			r.ProblemOf(o.field+".set", v.At, "must be a mapping with fields of a limit, such as {strategy: token_bucket, burst: 50}, not %s", v.Describe())
		default:
			r.Enter(o.field)
			r.Enter("set")
			l := newLimit()
			if r.mapping(r.onlySettable(v), inLimit, target{limit: l}); l.plan != "" {
				l.from = v
				r.checkPlan(l)
			}
			r.Leave()
			r.Leave()
			l.path = o.field + ".set"
			r.checkReplaces(l)
		}
	}
}

// onlySettable returns set without the keys that overlays cannot set, which it reports.
func (r *reader) onlySettable(set *document.Value) *document.Value {
	only, can := set, names(settable)
	for i := 0; i < len(set.Content); i += 2 {
		key := &set.Content[i]
		what := "unknown key" + spelling.Suggest(key.Text, can)
		switch {
		case key.Kind != document.String || slices.Contains(can, key.Text):
			continue
		case slices.ContainsFunc(overlayFields, func(f fields.Field[*overlay]) bool { return f.Name == key.Text }):
			what = "belongs beside set, and not into it"
		case len(byName[key.Text]) > 0:
			what = "an overlay cannot set it" + spelling.Suggest(key.Text, can)
		}
		r.ProblemOf(key.Text, key.At, "%s", what)
		only = only.Without(key.Text)
	}
	return only
}

// in returns the overlays that can be laid over rules of a domain.
func (over *overlays) in(domain string) (list []*overlay) {
	for _, o := range over.list {
		if o.domain == "" || matches.Matches(o.domain, domain) {
			o.inDomain = true
			list = append(list, o)
		}
	}
	return list
}

// covers reports whether o is for limits with that name of rules with the descriptors of path.
func (o *overlay) covers(path []descriptors.Entry, name string) bool {
	if len(o.path) > len(path) || o.name != "" && !matches.Matches(o.name, name) {
		return false
	}
	for i, e := range o.path {
		if !matches.Matches(e.key, path[i].Key) || e.value != "" && !matches.Matches(e.value, path[i].Value) {
			return false
		}
	}
	return true
}

// entryOf is the key and value of a descriptor as written; the value of a match is ~ and its text.
func (r *reader) entryOf(v *document.Value) descriptors.Entry {
	d := descriptor{match: new(match)}
	d.Key, d.Value = textOf(v, "key"), textOf(v, "value")
	if _, written := v.Pair("match"); written != nil && r.asksValue() {
		quiet := reader{opts: r.opts, over: r.over, file: r.file} // its problems are reported when the descriptor is read
		quiet.readMatch(written, d.match)
		quiet.compileMatch(&d)
	}
	return d.Written()
}

// asksValue reports whether an overlay chooses descriptors by value where the next one stands.
func (r *reader) asksValue() bool {
	depth := len(r.entries)
	return slices.ContainsFunc(r.overlays, func(o *overlay) bool { return depth < len(o.path) && o.path[depth].value != "" })
}

// textOf is the text of a key's value; "" for null and without the key.
func textOf(v *document.Value, name string) string {
	if _, text := v.Pair(name); text != nil && text.Kind != document.Null {
		return text.Text
	}
	return ""
}

// lay returns a limit of the descriptor that is read, the last of r.entries, with the fields that overlays
// set. written is what the rule says of it. Of two overlays the later one sets a field.
func (r *reader) lay(limit, written *document.Value) *document.Value {
	_, unlimited := written.Pair("unlimited")
	if limit.Kind != document.Map || unlimited != nil && unlimited.Meaning() == true {
		return limit
	}
	name := textOf(written, "name")
	for _, o := range r.overlays {
		if !o.covers(r.entries, name) {
			continue
		}
		o.used = true
		for i := 0; i < len(o.set.Content); i += 2 {
			if key := o.set.Content[i]; o.force || !written.Has(key.Text) {
				limit = limit.Without(key.Text)
				limit.Content = append(limit.Content, key, o.set.Content[i+1])
			}
		}
	}
	return limit
}

// origin says which fields of a limit come from overlays, and from where.
func (over *overlays) origin(limit *document.Value) descriptors.Laid {
	if len(over.list) == 0 {
		return nil
	}
	laid := descriptors.Laid{}
	for i := 0; i < len(limit.Content); i += 2 {
		if key := &limit.Content[i]; over.files[key.At.File] {
			laid[key.Text] = key.At.Place()
		}
	}
	if len(laid) == 0 {
		return nil
	}
	id := laid.String()
	if over.laid[id] == nil {
		over.laid[id] = laid
	}
	return over.laid[id]
}

// blame adds to each problem of the descriptor d the names of the overlays that are laid over its
// first limit.
func (over *overlays) blame(d *descriptor, problems Problems) {
	for i := range problems {
		limits := d.limits()
		switch p := &problems[i]; {
		case len(limits) == 0 || limits[0].Laid == nil:
		case over.files[p.File]:
			p.Message = fmt.Sprintf("%s (laid over the rule at %s)", p.Message, d.Pos)
		case p.File == d.Pos.File: // not of a table
			p.Message += fmt.Sprintf(" (with %s)", limits[0].Laid)
		}
	}
}

// own has a problem of a limit's field that an overlay sets name the overlay.
func (over *overlays) own(p *Problem) {
	_, field, _ := strings.Cut(p.Field, ".")
	name := field
	if end := strings.IndexAny(field, ".["); end >= 0 {
		name = field[:end]
	}
	for _, o := range over.list {
		if key, _ := o.set.Pair(name); key != nil && key.At.File == p.File && key.At.Compare(p.Position) <= 0 {
			p.Field = o.field + ".set." + field
		}
	}
}

// overlaySchema is the schema of an overlay.
func overlaySchema() Schema {
	s := fields.ObjectSchema(overlayFields)
	s["anyOf"] = []Schema{{"required": []string{"domain"}}, {"required": []string{"path"}}, {"required": []string{"name"}}}
	return s
}
