package rules

import (
	"fmt"
	"slices"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// File is one source of rules, a file or a resource of a control plane, as data.
type File struct {
	Name string // for messages
	// Root is the mapping with domain and descriptors; nil when there is none.
	Root *document.Value
	// Problems are the reasons why Root could not be read. Root has no meaning
	// then.
	Problems Problems
	// Warnings are of things that are odd and have a meaning.
	Warnings Problems
	// FromMessage says that the rules come from a control plane's message. Such
	// rules have the fields that the message lacks in metadata.rls.
	FromMessage bool
	// Overlay says that the file has no rules but overlays, which are laid over the rules of all
	// files.
	Overlay bool
}

type (
	// Problem is one thing that is wrong in the rules, and where.
	Problem = document.Problem
	// Problems has every problem of a load, by file, line and column.
	Problems = document.Problems
)

// MaxDepth is how deep descriptors may stand in each other, and values of
// metadata in each other.
const MaxDepth = 1000

// file is what the top of one File says.
type file struct {
	source       *File
	in           *domain // that it has joined; nil until then, and if it is left out
	domain       string
	domainPos    document.Position
	charge       stated[descriptors.Charge]
	onError      stated[descriptors.Policy]
	pools, plans []*named
	items        []*document.Value // of the list of descriptors

	lenders map[string]*descriptors.Rule // of a domain, for contents
}

// stated is a value of a file, or of a domain that has it from a file.
type stated[V comparable] struct {
	value V
	at    document.Position // none if no file says it
}

// stating is the type of a value of that form, with its position.
func stating[V comparable](form fields.Form[V], at func(target) *stated[V]) fields.Type[target] {
	t := fields.At(form, func(t target) *V { return &at(t).value })
	t.Set = func(r *fields.Reader, t target, v *document.Value) {
		if x, ok := form.Read(r, v); ok {
			*at(t) = stated[V]{x, v.At}
		}
	}
	return t
}

// descriptor is one item of a list of descriptors, as written.
type descriptor struct {
	descriptors.Descriptor
	rule    descriptors.Rule  // without its limits
	match   *match            // nil without one
	single  *limit            // rate_limit
	several []*limit          // rate_limits
	items   []*document.Value // of its list of descriptors
	wrong   bool              // it, or what its limits name, has a problem, reported
}

// limit is one limit of a descriptor, as written.
type limit struct {
	descriptors.Limit // without the fields that follow from spec and unit

	path      string          // rate_limit, rate_limits[2]
	from      *document.Value // the mapping; of a repeated rate_limit both, joined
	unit      string
	spec      algorithms.Spec // without the window
	unlimited bool
	replaces  []replaced
	plan      planName
	table     tableOf
	lender    poolName
	maxBorrow algorithms.Percent // of Whole, unless it is given
	wrong     bool               // a value had no meaning, reported
}

func newLimit() *limit {
	return &limit{Limit: descriptors.Limit{Multiplier: 1}, maxBorrow: algorithms.Whole}
}

// replaced is one item of replaces, as written.
type replaced struct {
	name string
	at   document.Position
}

// path names re, the item i of the limit l.
func (re *replaced) path(l *limit, i int) string {
	return fmt.Sprintf("%s.replaces[%d].name", l.path, i)
}

// readTop reads a file but for its descriptors, and lets it join its domain.
func (r *reader) readTop(f *file) {
	r.file = f
	root := f.source.Root
	r.found = len(r.Problems)
	f.domainPos = document.Position{File: f.source.Name}
	if !f.source.FromMessage {
		f.domainPos.Line, f.domainPos.Column = 1, 1
	}
	r.Problems, r.warnings = append(r.Problems, f.source.Problems...), append(r.warnings, f.source.Warnings...)
	switch {
	case len(f.source.Problems) > 0:
		return
	case root == nil || root.Kind == document.Null:
	case root.Kind != document.Map:
		r.Problem(root.At, "must be a mapping with domain and descriptors, not %s", root.Describe())
		return
	default:
		r.mapping(root, inFile, target{file: f})
		f.domainPos = root.Position("domain")
	}
	if f.domain == "" {
		r.ProblemOf("domain", f.domainPos, "must not be empty; name the domain that Envoy's filter asks with")
	}
	if f.source.FromMessage {
		r.gather(f.items, 0)
	}
	if len(r.Problems) == r.found || !r.opts.SkipWrong {
		r.join(f)
	}
}

// readDescriptors reads the descriptors of a file.
func (r *reader) readDescriptors(f *file) {
	if r.file, r.overlays = f, nil; f.domain != "" {
		r.overlays = r.over.in(f.domain)
	}
	var root *descriptors.Node
	if f.in != nil && f.domain != "" && (r.opts.MergeDomains || f.in.pos == f.domainPos) {
		root = f.in.Root()
	}
	r.readList(f.items, root)
}

// readList reads a list of descriptors, which stand a level deeper than the one that is being read, and
// adds them below its node. Without a node they are read for their problems.
func (r *reader) readList(items []*document.Value, parent *descriptors.Node) {
	own := len(r.Problems) - r.found
	r.depth++
	if parent != nil {
		parent.Grow(len(items))
	}
	for _, item := range items {
		r.Detached(func() { r.readDescriptor(item, parent) })
	}
	r.depth--
	r.found = len(r.Problems) - own
}

var listOfDescriptors = fields.Type[target]{Name: "a list", Schema: listSchema("descriptor"), Set: func(r *fields.Reader, t target, v *document.Value) {
	if t.depth == MaxDepth {
		r.Problem(v.At, "descriptors stand more than %d deep in each other", MaxDepth)
		return
	}
	items := t.list(v)
	switch {
	case t.overridden > 0:
		t.readList(items, nil)
	case t.descriptor != nil:
		t.descriptor.items = items
	default:
		t.file.items = items
	}
}}

func (r *reader) readDescriptor(v *document.Value, parent *descriptors.Node) {
	d := &descriptor{Descriptor: descriptors.Descriptor{Pos: v.At}}
	r.found = len(r.Problems)
	if r.file.source.FromMessage {
		v = r.unpack(v)
	}
	if r.overlays != nil {
		r.entries = append(r.entries, r.entryOf(v))
		defer func() { r.entries = r.entries[:len(r.entries)-1] }()
	}
	r.mapping(v, inDescriptor, target{descriptor: d})
	if r.overridden > 0 {
		return
	}
	if r.opts.Lint && r.file.in != nil {
		r.file.in.written = append(r.file.in.written, d.limits()...)
	}
	if d.Key == "" {
		r.ProblemOf("key", v.Position("key"), "must not be empty; a descriptor matches entries of one key")
	}
	r.compileMatch(d)
	r.checkMatch(v, d)
	if d.single != nil && d.several != nil {
		name, _ := v.Pair("rate_limits")
		r.ProblemOf("rate_limits", name.At, "excludes rate_limit; move that into the list")
	}
	read := len(r.Problems)
	r.compileLimits(d)
	r.checkReserved(v, d, d.Rule)
	d.wrong = d.wrong || len(r.Problems) > r.found
	if parent != nil && d.Rule != nil && d.single != nil && d.single.table.name() != "" {
		d.wrong = !r.addTable(v, parent, d) || d.wrong
	}
	r.over.blame(d, r.Problems[read:])
	if r.opts.Lint {
		r.lintDescriptor(v, d)
	}
	r.readList(d.items, r.add(parent, d))
}

// limits are the limits of d as written.
func (d *descriptor) limits() []*limit {
	if d.single == nil {
		return d.several
	}
	return append([]*limit{d.single}, d.several...)
}

// checkReserved refuses fields of d, whose mapping is v, if that rule takes its value for the id of a
// reservation.
func (r *reader) checkReserved(v *document.Value, d *descriptor, rule *descriptors.Rule) {
	if !rule.Reserves() {
		return
	}
	for _, f := range []struct {
		name  string
		given bool
	}{{"share_threshold", d.Shared}, {"value_to_metric", d.ValueToMetric}, {"detailed_metric", d.rule.DetailedMetric}, {"mask", d.Mask != descriptors.Mask{}}} {
		if f.given {
			r.Problems.Add(v.Position(f.name), f.name, "has no meaning beside reserve: the value of %q is the id of a reservation, which is in no counter and in no metric", d.Key)
		}
	}
}

var oneLimit = fields.Type[target]{Name: "a limit", Schema: Schema{"type": []string{"object", "null"}, "$ref": "#/$defs/limit"}, Set: func(_ *fields.Reader, t target, v *document.Value) {
	d := t.descriptor
	// Null and NULL have always been a rate_limit without a unit.
	if v.Kind == document.Null && v.Text != "Null" && v.Text != "NULL" {
		d.single = nil
		return
	}
	var earlier []document.Value
	if d.single == nil {
		d.single = newLimit()
	} else {
		earlier = d.single.from.Content
	}
	joined := func(v *document.Value) *document.Value { // a repeated rate_limit adds to the one before it
		if earlier == nil || v.Kind != document.Map {
			return v
		}
		both := *v
		both.Content = slices.Concat(earlier, v.Content)
		return &both
	}
	if t.overridden == 0 {
		v = t.lay(v, joined(v))
	}
	t.readLimit(v, d.single)
	d.single.from = joined(v)
}}

var limits = fields.Type[target]{Name: "a list of limits", Schema: Schema{"type": []string{"array", "null"}, "minItems": 1, "items": Schema{
	"type": "object", "$ref": "#/$defs/limit", "properties": Schema{"plan": false, "table": false, "unlimited": Schema{"enum": []any{false, nil}}},
}}, Set: func(r *fields.Reader, t target, v *document.Value) {
	items := t.list(v)
	if v.Kind == document.List && len(v.Content) == 0 {
		r.Problem(v.At, "must have at least one limit")
	}
	t.descriptor.several = make([]*limit, len(items))
	for i, item := range items {
		t.descriptor.several[i] = newLimit()
		r.EnterItem(i)
		t.readLimit(t.lay(item, item), t.descriptor.several[i])
		r.Leave()
	}
}}

func (r *reader) readLimit(v *document.Value, l *limit) {
	if v.Kind == document.Null {
		*l = *newLimit()
	}
	l.path, l.from = r.Path(), v
	switch v.Kind {
	case document.Null:
	case document.Map:
		before := len(r.Problems)
		r.mapping(v, inLimit, target{limit: l})
		if l.Shadow {
			l.spec.Mark = "~shadow"
		}
		l.wrong = l.wrong || len(r.Problems) > before
		l.Laid = r.over.origin(v)
	default:
		l.wrong = true
		r.Problem(v.At, "must be a mapping, not %s", v.Describe())
	}
}
