package rules

import (
	"fmt"
	"slices"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// MaxDepth is how deep descriptors may stand in each other, and values of
// metadata in each other.
const MaxDepth = 1000

// file is the content of one File, read into fields.
type file struct {
	domain      string
	domainPos   descriptors.Position
	charge      *descriptors.Charge // nil when the file does not say
	chargePos   descriptors.Position
	onError     descriptors.Policy // inherited when the file does not say
	onErrorPos  descriptors.Position
	descriptors []descriptor
	wrong       bool // it has a problem outside of its descriptors, reported
}

// descriptor is one item of a list of descriptors, as written.
type descriptor struct {
	descriptors.Descriptor
	rule    descriptors.Rule // without its limits
	single  *limit           // rate_limit
	several []limit          // rate_limits
	below   []descriptor
	wrong   bool // it has a problem, reported
}

// limit is one limit of a descriptor, as written.
type limit struct {
	descriptors.Limit // without the fields that follow from spec and unit

	path      string // rate_limit, rate_limits[2]
	from      *Value // the mapping; of a repeated rate_limit both, joined
	unit      string
	spec      algorithms.Spec // without the window
	unlimited bool
	replaces  []replaced
	wrong     bool // a value had no meaning, reported
}

func newLimit() *limit {
	return &limit{Limit: descriptors.Limit{Multiplier: 1, OnError: inherited}}
}

// replaced is one item of replaces, as written.
type replaced struct {
	name string
	at   descriptors.Position
}

// unplaced is how many problems do not belong to a descriptor that was read.
func (r *reader) unplaced() int { return len(r.problems) - r.placed }

// read reads the rules of the reader's file.
func (r *reader) read() (written file) {
	written.onError = inherited
	r.problems, r.warnings = append(r.problems, r.file.Problems...), append(r.warnings, r.file.Warnings...)
	defer func() { written.wrong = r.unplaced() > 0 }()
	written.domainPos = descriptors.Position{File: r.file.Name}
	if !r.file.FromMessage {
		written.domainPos.Line, written.domainPos.Column = 1, 1
	}
	if len(r.problems) > 0 {
		return written
	}
	if root := r.file.Root; root != nil && root.Kind != Null {
		if root.Kind != Map {
			r.problem(root.At, "", "must be a mapping with domain and descriptors, not %s", root.describe())
			return written
		}
		r.mapping(root, inFile, "", target{file: &written})
		written.domainPos, written.onErrorPos = root.at("domain"), root.at("on_error")
		if r.charged != nil {
			written.charge, written.chargePos = r.charged, r.chargedAt
		}
	}
	if written.domain == "" {
		r.problem(written.domainPos, "domain", "must not be empty; name the domain that Envoy's filter asks with")
	}
	return written
}

var listOfDescriptors = setter{typ: "a list", schema: listSchema("descriptor"), set: func(r *reader, t target, v *Value, path string) {
	if r.depth == MaxDepth {
		r.problem(v.At, path, "descriptors stand more than %d deep in each other", MaxDepth)
		return
	}
	r.depth++
	defer func() { r.depth-- }()
	var list []descriptor
	if items := r.list(v, path); len(items) > 0 {
		list = make([]descriptor, len(items))
		for i, item := range items {
			before := r.unplaced()
			r.descriptor(item, &list[i])
			own := r.unplaced() - before
			list[i].wrong = own > 0
			r.placed += own
		}
	}
	if t.file != nil {
		t.file.descriptors = list
	} else {
		t.descriptor.below = list
	}
}}

func (r *reader) descriptor(v *Value, d *descriptor) {
	d.Pos = v.At
	if r.file.FromMessage {
		v = r.unpack(v)
	}
	r.mapping(v, inDescriptor, "", target{descriptor: d})
	if r.overridden > 0 {
		return
	}
	if d.Key == "" {
		r.problem(v.at("key"), "key", "must not be empty; a descriptor matches entries of one key")
	}
	if d.Shared && !d.HasWildcard() {
		r.problem(v.at("share_threshold"), "share_threshold", "needs a wildcard: there is no * in %q", d.Entry)
	}
	if d.single != nil && d.several != nil {
		name, _ := v.pair("rate_limits")
		r.problem(name.At, "rate_limits", "excludes rate_limit; move that into the list")
	}
	r.compileLimits(d)
	if !r.opts.Lint.IsZero() {
		r.lintDescriptor(v, d)
	}
}

var oneLimit = setter{typ: "a limit", schema: limitRef, set: func(r *reader, t target, v *Value, path string) {
	d := t.descriptor
	// Null and NULL have always been a rate_limit without a unit.
	if v.Kind == Null && v.Text != "Null" && v.Text != "NULL" {
		d.single = nil
		return
	}
	var earlier []Value
	if d.single == nil {
		d.single = newLimit()
	} else {
		earlier = d.single.from.Content
	}
	r.limit(v, path, d.single)
	if earlier != nil && v.Kind == Map { // a repeated rate_limit adds to the one before it
		both := *v
		both.Content = slices.Concat(earlier, v.Content)
		d.single.from = &both
	}
}}

var limits = setter{typ: "a list of limits", schema: limitsSchema, set: func(r *reader, t target, v *Value, path string) {
	items := r.list(v, path)
	if v.Kind == List && len(v.Content) == 0 {
		r.problem(v.At, path, "must have at least one limit")
	}
	t.descriptor.several = make([]limit, len(items))
	for i, item := range items {
		t.descriptor.several[i] = *newLimit()
		r.limit(item, fmt.Sprintf("%s[%d]", path, i), &t.descriptor.several[i])
	}
}}

func (r *reader) limit(v *Value, path string, l *limit) {
	l.path, l.from = path, v
	switch v.Kind {
	case Null:
		*l = *newLimit()
		l.path, l.from = path, v
	case Map:
		before := len(r.problems)
		r.mapping(v, inLimit, path, target{limit: l})
		l.wrong = l.wrong || len(r.problems) > before
	default:
		l.wrong = true
		r.problem(v.At, path, "must be a mapping, not %s", v.describe())
	}
}
