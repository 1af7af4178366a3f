package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// compileLimits compiles the limits of d into d's rule. It returns the written form of each limit that the
// rule has; limits with problems are not among them. The rule is nil when d has no limit, or only limits with problems.
func (r *reader) compileLimits(d *descriptor) (written []*limit) {
	rule := new(descriptors.Rule) // a copy, so that the tree does not keep d in memory
	*rule = d.rule
	limits, several := d.several, d.single == nil
	if !several {
		limits = []*limit{d.single}
	}
	for _, l := range limits {
		r.checkReplaces(l)
		switch {
		case several:
			if r.checkAlone(l); l.unlimited {
				r.problemOf(l, "unlimited", "belongs into rate_limit: an unlimited descriptor has no list of limits")
				continue
			}
		case l.plan != "":
			r.takePlan(d, l)
			return nil
		case l.unlimited:
			r.checkUnlimited(l)
			rule.Unlimited, rule.Requests, rule.Name, rule.Replaces = true, l.spec.Requests, l.Name, l.Replaces
			d.Rule = rule
			return nil
		}
		inForce := func(other *limit) bool { return other != l && !other.Shadow }
		if l.spec.Lease != (algorithms.Lease{}) && !l.Shadow && slices.ContainsFunc(limits, inForce) {
			r.warnings.Add(l.from.Position("lease"), join(l.path, "lease"), "has no effect beside other limits: the limits of a descriptor are charged together in the store")
		}
		if limit, ok := r.compile(l, limits); ok {
			rule.Limits, written = append(rule.Limits, limit), append(written, l)
		}
	}
	r.keepApart(rule.Limits, written)
	if len(rule.Limits) > 0 {
		d.Rule = rule
		d.wrong = r.file.in != nil && !r.complete(r.file.in, written, rule.Limits)
	}
	return written
}

// keepApart gives a limit with a rollout cells of its own if one without would count in the
// same cells, and reports the limits that would still share theirs. compiled[i] is written[i].
func (r *reader) keepApart(compiled []descriptors.Limit, written []*limit) {
	for i, l := range written {
		for j, other := range written {
			if l.from.Has("rollout") && !other.from.Has("rollout") && sameCounter(compiled[i].Spec, compiled[j].Spec) {
				spec := compiled[i].Spec
				spec.Mark = "~rollout"
				compiled[i].Limit, _ = r.limits.get(spec) // a mark makes no spec wrong
			}
		}
	}
	for i, l := range written {
		for j := range i {
			switch {
			case !sameCounter(compiled[i].Spec, compiled[j].Spec):
			case compiled[i].Calendar != compiled[j].Calendar:
				r.ProblemOf(l.path, l.from.At, "is a %s like %q before it and could share its counter: in two time zones one may begin at the same moment; keep one of them, or change the unit", compiled[i].Words(), rate(&compiled[j]))
			default:
				r.ProblemOf(l.path, l.from.At, "has the strategy and window of %q before it and would share its counter; keep the stricter one or change the window", rate(&compiled[j]))
			}
		}
	}
}

// sameCounter reports whether two limits of one descriptor would count in the
// same cell, or in cells with the same key: a day may begin at one moment in two time zones.
func sameCounter(a, b algorithms.Spec) bool {
	return a.Strategy == b.Strategy && a.Window == b.Window && a.FromFirstHit == b.FromFirstHit && a.Extend == b.Extend && a.Calendar.On == b.Calendar.On && a.Mark == b.Mark &&
		(a.Overdraft > 0 && a.Requests > 0) == (b.Overdraft > 0 && b.Requests > 0) && a.Precision == b.Precision
}

// rate is a limit in a message: 10 per 15 minutes.
func rate(l *descriptors.Limit) string {
	return fmt.Sprintf("%d per %s", l.Requests, l.Words())
}

// checkReplaces checks and sets the names of the limits that l replaces.
func (r *reader) checkReplaces(l *limit) {
	for i, re := range l.replaces {
		l.Replaces = append(l.Replaces, re.name)
		switch re.name {
		case "":
			r.ProblemOf(re.path(l, i), re.at, "must not be empty; it is the name of another limit")
		case l.Name:
			r.ProblemOf(re.path(l, i), re.at, "a limit cannot replace itself (%q)", l.Name)
		}
	}
}

// checkUnlimited refuses the fields that an unlimited rate_limit cannot have.
func (r *reader) checkUnlimited(l *limit) {
	for i := range table {
		f := &table[i]
		if f.in != inLimit || !l.from.Has(f.Name) {
			continue
		}
		at, path := l.from.Position(f.Name), join(l.path, f.Name)
		switch {
		case f.Name == "table":
		case f.Name == "unit" && descriptors.ParseUnit(l.unit).Valid(), f.own:
			r.ProblemOf(path, at, "must not be given with unlimited: true")
		case f.Name == "unit", f.Name == "requests_per_unit", f.Name == "shadow_mode":
			r.warnings.Add(at, path, "has no meaning with unlimited: true and is ignored")
		}
	}
}

// compile turns l, one of all limits of a descriptor, into a limit that can be
// decided. It returns false when that is not possible, which is reported.
func (r *reader) compile(l *limit, all []*limit) (descriptors.Limit, bool) {
	if l.Shadow && l.from.Has("rollout") {
		r.problemOf(l, "rollout", "must not be given with shadow_mode: true, which watches the limit for every key; remove shadow_mode to enforce it for a share of them")
	}
	unit := descriptors.ParseUnit(l.unit)
	switch _, v := l.from.Pair("unit"); {
	case unit.Valid():
	case v == nil && l.wrong:
	case v == nil:
		r.problemOf(l, "unit", "is missing; one of %s", strings.Join(descriptors.UnitNames(), ", "))
	case v.Kind != document.List && v.Kind != document.Map:
		r.problemOf(l, "unit", "unknown unit %q%s", l.unit, spelling.Suggest(l.unit, descriptors.UnitNames()))
	}
	if !unit.Valid() || l.wrong {
		return descriptors.Limit{}, false
	}
	if !l.from.Has("requests_per_unit") {
		r.warnings.Add(l.from.At, join(l.path, "requests_per_unit"), "is missing, which means 0: every request is denied")
	}
	spec := l.spec
	var wrong *algorithms.SpecError
	if spec.Window, wrong = unit.Window(l.Multiplier, spec.Calendar.On); wrong != nil {
		r.problemOf(l, wrong.Field, "%s", wrong.Message)
		return descriptors.Limit{}, false
	}
	spec.Requests, spec.Burst = r.opts.Share.Of(spec.Requests), r.opts.Share.Of(spec.Burst)
	if spec.Overdraft != algorithms.FullOverdraft && spec.Overdraft > 0 {
		spec.Overdraft = uint64(r.opts.Share.Of(uint32(spec.Overdraft)))
	}
	spec = r.withDefaults(l, spec, all)
	decided, wrong := r.limits.get(spec)
	if wrong != nil {
		r.problemOf(l, wrong.Field, "%s", wrong.Message)
		return descriptors.Limit{}, false
	}
	compiled := l.Limit
	compiled.Limit, compiled.Unit, compiled.WrittenBurst = decided, unit, spec.Burst
	compiled.GivesWay = spec.Strategy != l.spec.Strategy && !l.from.Has("burst")
	compiled.Share, compiled.WrittenRequests = r.opts.Share, l.spec.Requests
	r.borrow(l, &compiled)
	return compiled, true
}

// withDefaults gives a limit without a strategy the default one. A limit that
// could not have the default keeps a strategy that it can have, and a warning
// says so; a default is never a reason to refuse a rule.
func (r *reader) withDefaults(l *limit, spec algorithms.Spec, all []*limit) algorithms.Spec {
	if r.opts.Strategy == algorithms.FixedWindow || l.from.Has("strategy") || spec.FromFirstHit || spec.Calendar.On {
		return spec
	}
	plain := spec
	spec.Strategy = r.opts.Strategy
	if spec.Burst == 0 {
		spec.Burst = r.opts.Burst
	}
	for _, o := range all {
		other := o.spec
		other.Window = descriptors.ParseUnit(o.unit).Duration() * time.Duration(o.Multiplier)
		if o != l && o.from.Has("strategy") && sameCounter(spec, other) {
			r.warnings.Add(l.from.At, l.path, "is a fixed_window in spite of DEFAULT_STRATEGY, because %s has that strategy and the same window", o.path)
			return plain
		}
	}
	_, wrong := r.limits.get(spec)
	switch _, otherwise := r.limits.get(plain); {
	case wrong == nil, otherwise != nil: // also if the limit would be wrong without the default, too
	case wrong.Field == "burst":
		spec.Burst = 0
		r.warnings.Add(l.from.At, l.path, "has the strategy's own burst in spite of DEFAULT_BURST: %s", wrong.Message)
	case spec.Strategy == algorithms.SlidingLog && wrong.Field == "requests_per_unit":
		spec.Strategy = algorithms.SlidingWindow
		r.warnings.Add(l.from.At, l.path, "is a sliding_window in spite of DEFAULT_STRATEGY: %s", wrong.Message)
	default:
		spec = plain
		name, _, _ := strings.Cut(wrong.Field, ".")
		r.warnings.Add(l.from.At, l.path, "is a fixed_window in spite of DEFAULT_STRATEGY, because of its %s: %s", name, wrong.Message)
	}
	return spec
}

func (r *reader) problemOf(l *limit, name, format string, args ...any) {
	r.ProblemOf(join(l.path, name), l.from.Position(name), format, args...)
}

// limitCache lets rules with the same limit share it.
type limitCache map[algorithms.Spec]*algorithms.Limit

func (c limitCache) get(spec algorithms.Spec) (*algorithms.Limit, *algorithms.SpecError) {
	if l := c[spec]; l != nil {
		return l, nil
	}
	l, err := algorithms.New(spec)
	var wrong *algorithms.SpecError
	if !errors.As(err, &wrong) {
		c[spec] = l
	}
	return l, wrong
}
