package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/descriptors"
)

// overlays are the overlays of all files with overlays, in the order in which they are laid.
type overlays struct {
	list     []*overlay
	problems Problems
	told     map[Problem]bool            // the problems of which one rule was named, without the rule
	laid     map[string]descriptors.Laid // limits with the same fields share them
}

// overlay is one item of overlays: fields, and the rules that get them.
type overlay struct {
	at     descriptors.Position
	field  string    // overlays[0]
	domain string    // a pattern; "" is every domain
	path   []element // "" is every rule
	name   string    // a pattern; "" is every limit
	force  bool
	values *document.Value // of set, as written
	set    []setting

	inDomain, used bool // a domain, a rule matched
}

// element is one item of path: the patterns of a key and of a value.
type element struct{ key, value string }

// setting is one field of set.
type setting struct {
	of          *overlay
	in          place
	name, value *document.Value
}

// Tables have the types of their values.
var (
	overlayFile = []fields.Field[*[]overlay]{
		{Name: "overlays", Required: true, What: "the list of overlays", Type: fields.Type[*[]overlay]{Set: func(r *fields.Reader, t *[]overlay, v *document.Value) {
			if v.Kind == document.Null || v.Kind == document.List && len(v.Content) == 0 {
				return // overlays that ended
			}
			*t, _ = fields.List("overlays", anOverlay).Read(r, v)
		}}},
	}
	anOverlay = fields.Type[*overlay]{Set: func(r *fields.Reader, o *overlay, v *document.Value) {
		o.at, o.field = v.At, r.Path()
		fields.Mapping(r, overlayFields, o, v)
		if v.Kind == document.Map && !v.Has("domain") && !v.Has("path") && !v.Has("name") {
			r.Problem(v.At, "has neither domain nor path nor name, which say over which rules it is laid; domain: \"*\" is over all")
		}
	}}
	overlayFields = []fields.Field[*overlay]{
		{Name: "domain", What: "the pattern of the domains", Type: fields.At(fields.Name, func(o *overlay) *string { return &o.domain })},
		{Name: "path", What: "the patterns of the first descriptors", Type: fields.At(fields.List("keys and values", fields.Object(elementFields, func(e *element) *element { return e })), func(o *overlay) *[]element { return &o.path })},
		{Name: "name", What: "the pattern of the limits' names", Type: fields.At(fields.Name, func(o *overlay) *string { return &o.name })},
		{Name: "set", Required: true, What: "a mapping of the fields that the limits get", Type: fields.Type[*overlay]{Set: func(_ *fields.Reader, o *overlay, v *document.Value) { o.values = v }}},
		{Name: "force", What: "whether fields that a rule has written are replaced", Type: fields.At(fields.Bool, func(o *overlay) *bool { return &o.force })},
	}
	elementFields = []fields.Field[*element]{
		{Name: "key", Required: true, What: "the pattern of a descriptor's key", Type: fields.At(fields.Name, func(e *element) *string { return &e.key })},
		{Name: "value", What: "the pattern of its value", Type: fields.At(fields.Text, func(e *element) *string { return &e.value })},
	}
)

// Overlays cannot set unsettable, because they choose limits by name and leave unlimited rules as
// they are. Of the fields of a descriptor they can set ofRules, unless they choose limits by name.
var (
	unsettable = []string{"name", "unlimited"}
	ofRules    = []string{"shadow_mode", "quota_mode", "share_threshold", "detailed_metric", "value_to_metric"}
)

// settable returns the place of the field of that name that o can set.
func (o *overlay) settable(name string) (in place, ok bool) {
	if o.name == "" && slices.Contains(ofRules, name) {
		return inDescriptor, true
	}
	id, known := lookup(name, inLimit)
	return inLimit, known && table[id].in == inLimit && !slices.Contains(unsettable, name)
}

// splitOverlays reads the overlays among files, and returns the other files. The overlays are nil if
// no file has overlays.
func splitOverlays(all []*File, opts *Options) (over *overlays, files []*File, warnings Problems) {
	for _, f := range all {
		if !f.Overlay {
			files = append(files, f)
			continue
		}
		if over == nil {
			over = &overlays{told: map[Problem]bool{}, laid: map[string]descriptors.Laid{}}
		}
		r := reader{opts: opts, source: f}
		r.Problems, r.warnings = slices.Clone(f.Problems), slices.Clone(f.Warnings)
		if len(r.Problems) == 0 && f.Root != nil && f.Root.Kind != document.Null {
			over.list = append(over.list, r.readOverlays()...)
		}
		over.problems, warnings = append(over.problems, r.Problems...), append(warnings, r.warnings...)
	}
	if over != nil && len(over.problems) > 0 {
		over.list = nil
	}
	return over, files, warnings
}

func (r *reader) readOverlays() []*overlay {
	var read []overlay
	fields.Mapping(&r.Reader, overlayFile, &read, r.source.Root)
	list := make([]*overlay, len(read))
	for i := range read {
		list[i] = &read[i]
		if read[i].values != nil {
			r.Enter("overlays")
			r.EnterItem(i)
			r.Enter("set")
			r.readSet(list[i])
			r.Leave()
			r.Leave()
			r.Leave()
		}
	}
	return list
}

// readSet reads the fields of set, and checks each of them for itself.
func (r *reader) readSet(o *overlay) {
	v := o.values
	if v.Kind != document.Map || len(v.Content) == 0 {
		r.Problem(v.At, "must be a mapping with fields of a limit, such as {strategy: token_bucket, burst: 50}, not %s", v.Describe())
		return
	}
	canSet := func(f *field) bool {
		in, ok := o.settable(f.Name)
		return ok && in == f.in
	}
	parts := map[place]*document.Value{inLimit: {}, inDescriptor: {}}
	for i := 0; i < len(v.Content); i += 2 {
		s := setting{of: o, name: &v.Content[i], value: &v.Content[i+1]}
		var ok bool
		s.in, ok = o.settable(s.name.Text)
		switch {
		case ok || s.name.Kind != document.String:
			parts[s.in].Content = append(parts[s.in].Content, *s.name, *s.value)
			o.set = append(o.set, s)
		case len(byName[s.name.Text]) == 0:
			r.ProblemOf(s.name.Text, s.name.At, "%s", unknownKey(s.name.Text, canSet))
		case slices.Contains(ofRules, s.name.Text):
			r.ProblemOf(s.name.Text, s.name.At, "is a field of a rule, and this overlay has a name, which chooses single limits; move it into an overlay without name")
		default:
			r.ProblemOf(s.name.Text, s.name.At, "an overlay cannot set it; it can set %s", strings.Join(names(canSet), ", "))
		}
	}
	r.mapping(parts[inLimit], inLimit, target{limit: newLimit()})
	r.mapping(parts[inDescriptor], inDescriptor, target{descriptor: new(descriptor)})
}

// of returns the overlays that can be laid over rules of a domain.
func (over *overlays) of(domain string) (list []*overlay) {
	if over == nil {
		return nil
	}
	for _, o := range over.list {
		if o.domain == "" || descriptors.Matches(o.domain, domain) {
			o.inDomain = true
			list = append(list, o)
		}
	}
	return list
}

// unused returns warnings of overlays that match no rule.
func (over *overlays) unused() (warnings Problems) {
	if over == nil {
		return nil
	}
	for _, o := range over.list {
		switch {
		case o.used:
		case !o.inDomain:
			warnings.Add(o.at, o.field, "is laid over no rule: no domain matches %q", o.domain)
		default:
			warnings.Add(o.at, o.field, "is laid over no rule: no limit has such a path and name; /rlconfig shows the keys and values of rules")
		}
	}
	return warnings
}

// covers reports whether o is for rules with the descriptors of path.
func (o *overlay) covers(path []descriptors.Entry) bool {
	if len(o.path) > len(path) {
		return false
	}
	for i, e := range o.path {
		if !descriptors.Matches(e.key, path[i].Key) || e.value != "" && !descriptors.Matches(e.value, path[i].Value) {
			return false
		}
	}
	return true
}

// all are the problems of the overlays.
func (over *overlays) all() Problems {
	if over == nil {
		return nil
	}
	return over.problems
}

// entryOf is the key and value of a descriptor as written.
func entryOf(v *document.Value) (e descriptors.Entry) {
	if _, key := v.Pair("key"); key != nil {
		e.Key = key.Text
	}
	if _, value := v.Pair("value"); value != nil && value.Kind != document.Null {
		e.Value = value.Text
	}
	return e
}

// laying is a descriptor with the fields that overlays set.
type laying struct {
	plain, whole *document.Value // without and with these fields
	set          []setting
	single       descriptors.Laid   // of rate_limit
	several      []descriptors.Laid // of rate_limits
}

// lay lays the overlays over the limits of a descriptor, the last of r.entries. It returns nil if
// they set nothing.
func (r *reader) lay(v *document.Value) *laying {
	var fit []*overlay
	for _, o := range r.overlays {
		if o.covers(r.entries) {
			fit = append(fit, o)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	whole := *v
	whole.Content = slices.Clone(v.Content)
	l := &laying{plain: v, whole: &whole}
	var ofRule []setting
	add := func(limit, written *document.Value) descriptors.Laid {
		own, rule := choose(fit, written, v)
		*limit = *with(limit, own)
		l.set = slices.Concat(l.set, own, rule)
		if len(rule) > 0 {
			ofRule = rule // the same for each limit
		}
		return r.over.origin(own, rule)
	}
	if _, limit := whole.Pair("rate_limit"); limit != nil && limit.Kind == document.Map {
		written := document.Value{Kind: document.Map} // a repeated rate_limit adds to the one before it
		for i := 0; i < len(v.Content); i += 2 {
			if v.Content[i].Text == "rate_limit" && v.Content[i+1].Kind == document.Map {
				written.Content = append(written.Content, v.Content[i+1].Content...)
			}
		}
		l.single = add(limit, &written)
	}
	if _, list := whole.Pair("rate_limits"); list != nil && list.Kind == document.List {
		list.Content = slices.Clone(list.Content)
		for i := range list.Content {
			if limit := &list.Content[i]; limit.Kind == document.Map {
				written := *limit
				l.several = append(l.several, add(limit, &written))
			}
		}
	}
	if len(l.set) == 0 {
		return nil
	}
	l.whole = with(&whole, ofRule)
	return l
}

// choose returns the fields that overlays set in a limit and in its rule, which are written so. Of
// two overlays the later one sets a field.
func choose(fit []*overlay, limit, rule *document.Value) (own, whole []setting) {
	if _, unlimited := limit.Pair("unlimited"); unlimited != nil && unlimited.Meaning() == true {
		return nil, nil
	}
	name := ""
	if _, v := limit.Pair("name"); v != nil {
		name = v.Text
	}
	for _, o := range fit {
		if o.name != "" && !descriptors.Matches(o.name, name) {
			continue
		}
		o.used = true
		for _, s := range o.set {
			switch {
			case s.in == inLimit && (o.force || !limit.Has(s.name.Text)):
				own = put(own, s)
			case s.in == inDescriptor && (o.force || !rule.Has(s.name.Text)):
				whole = put(whole, s)
			}
		}
	}
	if i := slices.IndexFunc(own, func(s setting) bool { return s.name.Text == "plan" }); i >= 0 {
		plan := own[i].of // to which the fields of other overlays give way
		own = slices.DeleteFunc(own, func(s setting) bool { return s.of != plan && !slices.Contains(besidePlan, s.name.Text) })
	}
	return own, whole
}

// put adds a setting to a list, in place of one of the same name.
func put(list []setting, s setting) []setting {
	return append(slices.DeleteFunc(list, func(o setting) bool { return o.name.Text == s.name.Text }), s)
}

// with is the mapping v with the settings in it.
func with(v *document.Value, set []setting) *document.Value {
	for _, s := range set {
		v = v.Without(s.name.Text)
		v.Content = append(v.Content, *s.name, *s.value)
	}
	return v
}

// origin says where the settings come from.
func (over *overlays) origin(sets ...[]setting) descriptors.Laid {
	laid := descriptors.Laid{}
	for _, s := range slices.Concat(sets...) {
		laid[s.name.Text] = s.name.At.Place()
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

// mark tells the limits of d where their fields come from.
func (l *laying) mark(d *descriptor) {
	if d.single != nil {
		d.single.Laid = l.single
	}
	for i := range min(len(d.several), len(l.several)) {
		d.several[i].Laid = l.several[i]
	}
}

// blame turns the problems of a descriptor that it has only with overlays into problems of the
// overlays. They are among r.Problems[from:].
func (r *reader) blame(l *laying, from int) {
	before := r.problemsOf(l.plain)
	for _, p := range r.problemsOf(l.whole) {
		if i := slices.Index(r.Problems[from:], p); i >= 0 && !slices.Contains(before, p) {
			r.Problems = slices.Delete(r.Problems, from+i, from+i+1)
			r.over.blame(p, l)
		}
	}
}

// problemsOf are the problems of a descriptor without the descriptors below it.
func (r *reader) problemsOf(v *document.Value) Problems {
	opts := *r.opts
	opts.Lint = time.Time{}
	alone := reader{opts: &opts, source: r.source, limits: r.limits, charged: noCharge}
	alone.readDescriptor(v.Without("descriptors"), new(descriptor))
	return alone.Problems
}

// blame adds a problem of a rule that has it because of the fields of l. What many rules have is
// added once, with the first rule.
func (over *overlays) blame(p Problem, l *laying) {
	s, field := l.set[0], p.Field
	if _, below, ofLimit := strings.Cut(field, "."); ofLimit && strings.HasPrefix(field, "rate_limit") {
		field = below
	}
	name, _, _ := strings.Cut(field, ".")
	message := p.Message
	if i := slices.IndexFunc(l.set, func(s setting) bool { return s.name.Text == name && s.name.At.File == p.File }); i >= 0 {
		s = l.set[i]
		p.Field = s.of.field + ".set." + field
	} else {
		message = p.Field + " " + message
		p.Position, p.Field = s.name.At, s.of.field+".set"
	}
	if p.Message = ""; over.told[p] {
		return
	}
	over.told[p] = true
	p.Message = fmt.Sprintf("%s (laid over the rule at %s)", message, l.plain.At)
	over.problems = append(over.problems, p)
}

// BlamesOverlay reports whether err, with which Load refused files, has a problem of an overlay.
func BlamesOverlay(err error, files []*File) bool {
	var problems Problems
	errors.As(err, &problems)
	return slices.ContainsFunc(files, func(f *File) bool {
		return f.Overlay && slices.ContainsFunc(problems, func(p Problem) bool { return p.File == f.Name })
	})
}
