package descriptors

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"example.org/rls/pkg/algorithms"
)

// limitRules is a rate_limit as it is written.
type limitRules struct {
	field      string     // rate_limit, rate_limits[2]
	node       *yaml.Node // the mapping
	unit       string
	multiplier uint32
	spec       algorithms.Spec // but for the window
	unlimited  bool
	name       string
	replaces   []replacement
	at         [keyCount]*yaml.Node // the value of each key; nil when absent
	bad        bool                 // a value had no meaning, which has been reported
}

// replacement is an item of replaces.
type replacement struct {
	name string
	node *yaml.Node
}

func (l *limitRules) replaceNames() []string {
	if len(l.replaces) == 0 {
		return nil
	}
	names := make([]string, len(l.replaces))
	for i, r := range l.replaces {
		names[i] = r.name
	}
	return names
}

// rateLimit reads a rate_limit; null is none. A repeated rate_limit adds to
// the one before, as it always has.
func (r *reader) rateLimit(n *yaml.Node, field string, before *limitRules) *limitRules {
	// Null and NULL have always been a rate_limit without a unit.
	if isNull(n) && n.Value != "Null" && n.Value != "NULL" {
		return nil
	}
	l := before
	if l == nil {
		l = &limitRules{multiplier: 1}
	}
	r.limit(n, field, l)
	return l
}

func (r *reader) rateLimits(n *yaml.Node, field string) []limitRules {
	items := r.list(n, field)
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		r.problem(n, field, "must have at least one limit")
	}
	limits := make([]limitRules, len(items))
	for i, item := range items {
		limits[i].multiplier = 1
		r.limit(item, fmt.Sprintf("%s[%d]", field, i), &limits[i])
	}
	return limits
}

func (r *reader) limit(n *yaml.Node, field string, l *limitRules) {
	l.field, l.node = field, n
	switch {
	case isNull(n):
		*l = limitRules{field: field, node: n, multiplier: 1}
		return
	case n.Kind != yaml.MappingNode:
		l.bad = true
		r.problem(n, field, "must be a mapping, not %s", describe(n))
		return
	}
	before := len(r.problems)
	r.mapping(n, inRateLimit, field, func(p pair, field string) {
		l.at[p.key] = p.value
		switch p.key {
		case keyUnit:
			r.text(p.value, field, &l.unit)
		case keyRequestsPerUnit:
			r.count(p.value, field, &l.spec.Requests)
		case keyUnlimited:
			r.flag(p.value, field, &l.unlimited)
		case keyName:
			r.text(p.value, field, &l.name)
		case keyReplaces:
			l.replaces = r.replaces(p.value, field)
		case keyStrategy:
			l.spec.Strategy = r.strategy(p.value, field)
		case keyBurst:
			r.positive(p.value, field, &l.spec.Burst)
		case keyUnitMultiplier:
			r.positive(p.value, field, &l.multiplier)
		case keyWindow:
			l.spec.FromFirstHit = r.fromFirstHit(p.value, field)
		case keyExtend:
			r.flag(p.value, field, &l.spec.Extend)
		case keyMaxDelay:
			l.spec.MaxDelay = r.duration(p.value, field)
		}
	})
	l.bad = l.bad || len(r.problems) > before
}

func (r *reader) replaces(n *yaml.Node, field string) []replacement {
	var list []replacement
	for i, item := range r.list(n, field) {
		re := replacement{node: item}
		r.mapping(item, inReplaces, fmt.Sprintf("%s[%d]", field, i), func(p pair, field string) {
			re.node = p.value
			r.text(p.value, field, &re.name)
		})
		list = append(list, re)
	}
	return list
}

func (r *reader) strategy(n *yaml.Node, field string) algorithms.Strategy {
	var name string
	r.text(n, field, &name)
	s, err := algorithms.ParseStrategy(name)
	if err != nil {
		names := algorithms.Names()
		r.problem(n, field, "unknown strategy %q%s", name, orOneOf(name, names))
	}
	return s
}

// positive reads a whole number of at least 1.
func (r *reader) positive(n *yaml.Node, field string, into *uint32) {
	var v uint32
	if !r.count(n, field, &v) {
		return
	}
	if v == 0 {
		r.problem(n, field, "must be at least 1")
		return
	}
	*into = v
}

func (r *reader) fromFirstHit(n *yaml.Node, field string) bool {
	const fromFirstHit = "from_first_hit"
	var name string
	r.text(n, field, &name)
	if name != fromFirstHit {
		r.problem(n, field, "unknown window %q; %s, or leave it out for one that follows the clock", name, fromFirstHit)
	}
	return name == fromFirstHit
}

func (r *reader) duration(n *yaml.Node, field string) time.Duration {
	var text string
	r.text(n, field, &text)
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.problem(n, field, "must be a duration above 0 such as 500ms or 1.5s, not %q", text)
		return 0
	}
	return d
}

// compileLimits turns what is written into the limits of d.
func (r *reader) compileLimits(d *descriptor, single *limitRules, several []limitRules) {
	if single != nil {
		r.checkReplaces(single)
		if single.unlimited {
			r.checkUnlimited(single)
			d.unlimited, d.limited = single, true
			return
		}
		if limit, ok := r.compileLimit(single); ok {
			d.limits, d.limited = []Limit{limit}, true
		}
		return
	}
	for i := range several {
		l := &several[i]
		r.checkReplaces(l)
		if l.unlimited {
			r.problem(l.at[keyUnlimited], join(l.field, "unlimited"), "belongs into rate_limit: an unlimited descriptor has no list of limits")
			continue
		}
		limit, ok := r.compileLimit(l)
		if !ok {
			continue
		}
		for _, other := range d.limits {
			if sameCounter(limit.Spec, other.Spec) {
				r.problem(l.node, l.field, "has the strategy and window of %q before it and would share its counter; keep the stricter one or change the window", other.describe())
			}
		}
		d.limits = append(d.limits, limit)
	}
	d.limited = len(d.limits) > 0
}

// sameCounter reports whether two limits of one descriptor would count in the
// same cell.
func sameCounter(a, b algorithms.Spec) bool {
	return a.Strategy == b.Strategy && a.Window == b.Window && a.FromFirstHit == b.FromFirstHit && a.Extend == b.Extend
}

// describe is a limit in a message: 10 per 15 minutes.
func (l *Limit) describe() string {
	unit := strings.ToLower(l.Unit.String())
	if l.Multiplier == 1 {
		return fmt.Sprintf("%d per %s", l.Requests, unit)
	}
	return fmt.Sprintf("%d per %d %ss", l.Requests, l.Multiplier, unit)
}

func (r *reader) checkReplaces(l *limitRules) {
	for i, re := range l.replaces {
		field := fmt.Sprintf("%s.replaces[%d].name", l.field, i)
		switch re.name {
		case "":
			r.problem(re.node, field, "must not be empty; it is the name of another limit")
		case l.name:
			r.problem(re.node, field, "a limit cannot replace itself (%q)", l.name)
		}
	}
}

// checkUnlimited refuses what an unlimited rate_limit cannot have.
func (r *reader) checkUnlimited(l *limitRules) {
	for k, n := range l.at {
		if n == nil {
			continue
		}
		k := key(k)
		field := join(l.field, k.String())
		switch {
		case k == keyUnit && parseUnit(l.unit).Valid(), keys[k].ours:
			r.problem(n, field, "must not be given with unlimited: true")
		case k == keyUnit, k == keyRequestsPerUnit:
			r.warn(n.Line, n.Column, field, "has no meaning with unlimited: true and is ignored")
		}
	}
}

func (r *reader) compileLimit(l *limitRules) (Limit, bool) {
	unit := parseUnit(l.unit)
	if !unit.Valid() && l.at[keyUnit] == nil {
		if !l.bad {
			r.problem(l.node, join(l.field, "unit"), "is missing; one of %s", strings.Join(unitNames(), ", "))
		}
		return Limit{}, false
	}
	if !unit.Valid() && l.at[keyUnit].Kind == yaml.ScalarNode {
		r.problem(l.at[keyUnit], join(l.field, "unit"), "unknown unit %q%s", l.unit, orOneOf(l.unit, unitNames()))
	}
	if !unit.Valid() || l.bad {
		return Limit{}, false
	}
	if l.at[keyRequestsPerUnit] == nil {
		r.warn(l.node.Line, l.node.Column, join(l.field, "requests_per_unit"), "is missing, which means 0: every request is denied")
	}
	if most := algorithms.MaxWindow / unit.Duration(); time.Duration(l.multiplier) > most {
		r.problem(l.at[keyUnitMultiplier], join(l.field, "unit_multiplier"), "must be at most %d for the unit %s: a window is at most 10 years", most, strings.ToLower(unit.String()))
		return Limit{}, false
	}
	spec := l.spec
	spec.Window = unit.Duration() * time.Duration(l.multiplier)
	limit, err := r.limits.get(spec)
	if err != nil {
		r.specProblem(l, err)
		return Limit{}, false
	}
	return Limit{Limit: limit, Name: l.name, Replaces: l.replaceNames(), Unit: unit, Multiplier: l.multiplier, burst: l.spec.Burst}, true
}

// specProblem places what a strategy has to say.
func (r *reader) specProblem(l *limitRules, err error) {
	var spec *algorithms.SpecError
	if !errors.As(err, &spec) {
		r.problem(l.node, l.field, "%v", err)
		return
	}
	at := l.node
	if k, ok := keysByName[spec.Field]; ok && l.at[k] != nil {
		at = l.at[k]
	}
	r.problem(at, join(l.field, spec.Field), "%s", spec.Message)
}

// limitCache lets rules with the same limit share it.
type limitCache map[algorithms.Spec]*algorithms.Limit

func (c limitCache) get(spec algorithms.Spec) (*algorithms.Limit, error) {
	if l := c[spec]; l != nil {
		return l, nil
	}
	l, err := algorithms.New(spec)
	if err == nil {
		c[spec] = l
	}
	return l, err
}

// orOneOf is a suggestion for a word that is none of the known, or all of them.
func orOneOf(word string, known []string) string {
	if s := suggest(word, known); s != "" {
		return s
	}
	return "; one of " + strings.Join(known, ", ")
}
