package rules

import (
	"fmt"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/descriptors"
	matches "example.org/rls/pkg/descriptors/match"
)

// match is a match as it is written.
type match struct {
	kind       *matches.Kind
	at         document.Value // the texts of kind
	field      string         // the kind with the keys around it: match.not.cidr
	name       string         // the kind's key, or not; "" without one
	negated    bool
	ignoreCase bool
	wrong      bool // reported
}

// texts are the texts of a list, or the one text.
func (m *match) texts() []document.Value {
	if m.at.Kind == document.List {
		return m.at.Content
	}
	return []document.Value{m.at}
}

// text is the value with the item i of the texts, and its path.
func (m *match) text(i int) (*document.Value, string) {
	if m.at.Kind == document.List && i < len(m.at.Content) {
		return &m.at.Content[i], fmt.Sprintf("%s[%d]", m.field, i)
	}
	return &m.at, m.field
}

// kinds are the rows of a match.
func kinds() (rows []field) {
	for i := range matches.Kinds {
		k := &matches.Kinds[i]
		schema := Schema{"type": []string{"string", "integer", "boolean"}, "minLength": 1}
		kind := fields.Type[target]{Name: "text", Schema: schema}
		if k.List {
			kind.Name, kind.Schema = "a list of texts", Schema{"type": "array", "minItems": 1, "items": schema}
		}
		kind.Set = func(r *fields.Reader, t target, v *document.Value) {
			if t.match.gives(r, k.Name, v) {
				t.match.kind, t.match.at, t.match.field = k, *v, r.Path()
			}
		}
		// free, because the items of other lists are mappings
		rows = append(rows, field{in: inMatch, own: true, free: true, row: row{Name: k.Name, Type: kind, What: k.What, Note: k.Note}})
	}
	return append(rows,
		field{in: inMatch, own: true, row: row{Name: "not", Type: opposite,
			What: "a mapping with one of the above: all other values"}},
		field{in: inMatch, own: true, row: row{Name: "ignore_case", Type: fields.With(boolean, func(t target, on bool) { t.match.ignoreCase = t.match.ignoreCase || on }),
			Needs: Schema{"properties": Schema{"cidr": false, "not": has("cidr", false)}},
			What:  "upper and lower case are the same",
			Note:  "by Unicode's simple folding; not with `cidr`"}},
	)
}

// gives notes that a match has a kind, and reports whether it is the first one.
func (m *match) gives(r *fields.Reader, name string, v *document.Value) bool {
	if m.name != "" && m.name != name {
		r.Problem(v.At, "excludes %s; a match has one of %s", m.name, oneOfKinds())
		return false
	}
	m.name = name
	return true
}

// kindNames are the keys of a match of which it has one.
func kindNames() []string {
	return names(func(f *field) bool { return f.in == inMatch && f.Name != "ignore_case" })
}

// oneOfKinds is kindNames in a message.
func oneOfKinds() string { return strings.Join(kindNames(), ", ") }

// matching reads the match of a descriptor.
var matching = fields.Type[target]{
	Name: "a mapping", Schema: Schema{"$ref": "#/$defs/match"},
	Set: func(_ *fields.Reader, t target, v *document.Value) {
		t.descriptor.match = new(match)
		t.readMatch(v, t.descriptor.match)
	},
	Append: func(b []byte, t target) []byte {
		if m := t.descriptor.Match; m != nil {
			return fmt.Appendf(b, "%s %x", m.Text(), m.Sum)
		}
		return b
	},
}

func (r *reader) readMatch(v *document.Value, m *match) {
	before := len(r.Problems)
	if v.Kind != document.Map {
		r.Problem(v.At, "must be a mapping with one of %s, not %s", oneOfKinds(), v.Describe())
	} else if r.mapping(v, inMatch, target{match: m}); len(r.Problems) == before && m.name == "" {
		r.Problem(v.At, "must have one of %s", oneOfKinds())
	}
	m.wrong = m.wrong || len(r.Problems) > before
}

// opposite reads not of a match.
var opposite = fields.Type[target]{
	Name: "a mapping", Schema: Schema{"$ref": "#/$defs/match", "properties": Schema{"not": false}},
	Set: func(r *fields.Reader, t target, v *document.Value) {
		m := t.match
		switch {
		case m.negated && m.name != "not":
			r.Problem(v.At, "stands in another not; write the match without both")
		case m.gives(r, "not", v):
			m.name, m.negated = "", true
			t.readMatch(v, m)
			m.name = "not"
		}
	},
}

// compileMatch makes the match of a descriptor. It reports what is wrong with its texts.
func (r *reader) compileMatch(d *descriptor) {
	m := d.match
	if m == nil || m.wrong {
		return
	}
	before := len(r.Problems)
	var texts []string
	switch list := m.at.Kind == document.List; {
	case m.kind.List && !list:
		r.Problems.Add(m.at.At, m.field, "must be a list of texts, not %s", m.at.Describe())
	case list && !m.kind.List:
		r.checkText(&m.at, m.field)
	default:
		for i := range m.texts() {
			item, field := m.text(i)
			r.checkText(item, field)
			texts = append(texts, item.Text)
		}
	}
	if m.ignoreCase && m.kind.Name == "cidr" {
		r.Problems.Add(m.at.At, m.field, "has no meaning beside ignore_case; addresses have no case")
	}
	if len(r.Problems) > before {
		return
	}
	compiled, wrong := matches.New(m.kind, texts, m.negated, m.ignoreCase)
	for _, w := range wrong {
		at, field := m.text(w.Item)
		r.Problems.Add(at.At, field, "%v", w.Err)
	}
	d.Match = compiled
}

// checkText reports a value that is no text as matches have it.
func (r *reader) checkText(v *document.Value, field string) {
	switch v.Kind {
	case document.Wrong:
		r.Problems.Add(v.At, field, "%s", v.Text)
	case document.Float, document.Uint:
		r.Problems.Add(v.At, field, "%s must be quoted to be a text: %q", v.Text, v.Text)
	case document.Null, document.List, document.Map:
		r.Problems.Add(v.At, field, "must be a text, not %s", v.Describe())
	}
}

// mask reads the mask of a descriptor.
var mask = fields.Type[target]{
	Name: "a mapping", Schema: Schema{"type": "object", "$ref": "#/$defs/mask", "minProperties": 1},
	Set: func(r *fields.Reader, t target, v *document.Value) {
		if v.Kind != document.Map || len(v.Content) == 0 {
			r.Problem(v.At, "must be a mapping with ipv4, ipv6 or both, such as {ipv4: 24, ipv6: 64}, not %s", v.Describe())
			return
		}
		t.mapping(v, inMask, target{mask: &t.descriptor.Mask})
	},
	Append: func(b []byte, t target) []byte { return fmt.Append(b, t.descriptor.Mask) },
}

// maskBits is the number of the bits of a network.
func maskBits(most uint32, at func(target) *uint8) fields.Type[target] {
	return fields.With(between(1, most), func(t target, n uint32) { *at(t) = uint8(n) })
}

// checkMatch reports fields that have no meaning beside match or mask.
func (r *reader) checkMatch(v *document.Value, d *descriptor) {
	if d.match != nil && d.Value != "" {
		r.ProblemOf("match", v.Position("match"), "excludes value; write the value as match: {values: [...]}, or remove one of the two")
	}
	if d.Shared && !d.HasWildcard() && d.match == nil {
		r.ProblemOf("share_threshold", v.Position("share_threshold"), "needs a wildcard or match: there is no * in %q", d.Entry)
	}
	if d.Mask == (descriptors.Mask{}) {
		return
	}
	exact := d.Value != "" && !strings.Contains(d.Value, "*")
	if exact || d.Match != nil && d.Match.Exact() {
		r.ProblemOf("mask", v.Position("mask"), "has no meaning beside single values; remove it, or match addresses with cidr")
	}
	if d.Shared {
		r.ProblemOf("mask", v.Position("mask"), "has no meaning beside share_threshold, with which all addresses share one counter; remove one of the two")
	}
}

// matchSchema is the schema of a match.
func matchSchema() Schema {
	s := object(inMatch)
	s["type"] = "object"
	var one []Schema
	for _, name := range kindNames() {
		one = append(one, Schema{"required": []string{name}})
	}
	s["oneOf"] = one
	return s
}
