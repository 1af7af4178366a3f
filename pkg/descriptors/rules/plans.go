package rules

import (
	"fmt"
	"slices"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// unlimitedPlan is the plan that every domain has.
const unlimitedPlan = "unlimited"

var planNames = naming{one: "plan", reserved: unlimitedPlan, read: (*reader).readPlan}

// The limits of plans are part of the rules that name them, also in hashes.
var plans = planNames.field(planSchema(), func(b []byte, _ target) []byte { return b })

// besidePlan are the fields of a limit that names a plan.
var besidePlan = []string{"plan", "table", "name", "replaces"}

// readPlan reads one limit, or a list of limits.
func (r *reader) readPlan(n *named, v *document.Value) {
	var d descriptor
	before := len(r.Problems)
	if n.name == unlimitedPlan {
		r.Problem(n.at, "is always the plan without a limit; give this plan another name")
	}
	if v.Kind == document.List {
		if r.check(&field{}, v) {
			limits.Set(&r.Reader, target{reader: r, descriptor: &d}, v)
		}
	} else {
		d.single = newLimit()
		r.readLimit(v, d.single)
		r.checkAlone(d.single)
	}
	r.Detached(func() { n.written = r.compileLimits(&d) })
	if n.compiled = d.Rule; len(r.Problems) == before {
		n.rule = d.Rule
	}
	r.file.plans = append(r.file.plans, n)
}

// of is a plan as rules of the domain have it.
func (n named) of(r *reader, d *domain) *named {
	if n.compiled == nil {
		return &n
	}
	rule := *n.compiled
	rule.Limits = slices.Clone(rule.Limits)
	if r.complete(d, n.written, rule.Limits) && n.rule != nil {
		n.rule = &rule
	} else {
		n.rule = nil
	}
	return &n
}

// checkAlone refuses a plan and a table in l, which is a limit of a plan or one of several.
func (r *reader) checkAlone(l *limit) {
	for _, name := range []string{"plan", "table"} {
		if l.from.Has(name) {
			r.Detached(func() {
				r.problemOf(l, name, "belongs into rate_limit: a list of limits and a plan name no %s", name)
			})
			l.wrong = true
		}
	}
	l.plan, l.table = "", tableOf{}
}

// checkPlan refuses the fields that a limit with a plan cannot have. Fields from elsewhere
// give way to the plan: those of a message, to which metadata.rls adds it, and those of overlays.
func (r *reader) checkPlan(l *limit) {
	key, _ := l.from.Pair("plan")
	for i := 0; i < len(l.from.Content); i += 2 {
		name := &l.from.Content[i]
		id, known := lookup(name.Text, inLimit)
		if known && table[id].in == inLimit && !slices.Contains(besidePlan, name.Text) && name.At.File == key.At.File && !r.over.files[key.At.File] {
			r.ProblemOf(join(l.path, name.Text), name.At, "must not be given with plan, whose limits say it")
		}
	}
}

// takePlan gives d the limits of the plan that its limit l names.
func (r *reader) takePlan(d *descriptor, l *limit) {
	domain := r.file.in
	if r.checkPlan(l); domain == nil {
		return
	}
	switch plan := domain.plan(string(l.plan)); {
	case plan == nil:
		r.problemOf(l, "plan", "unknown plan %q%s", l.plan, domain.suggestPlan(string(l.plan)))
	case plan.rule == nil: // reported
		d.wrong = true
	default:
		d.Rule = planRule(&d.rule, l, plan, besidePlan)
		if fault := replacesItself(d.Rule); fault != nil && len(r.Problems) == r.found {
			r.problemOf(l, "plan", "%s", fault.Message)
		}
	}
}

// plan returns the plan of that name in the domain, or nil.
func (d *domain) plan(name string) *named {
	if name == unlimitedPlan {
		return &named{name: name, rule: &descriptors.Rule{Unlimited: true}}
	}
	return d.plans[name]
}

// suggestPlan is the end of a message about a plan that the domain does not have.
func (d *domain) suggestPlan(name string) string { return d.plans.suggest(name, unlimitedPlan) }

// planRule is a rule like the one given, with the limits of a plan, with the name and
// replaces of l if it has them, and with the place of each of the fields that an overlay has set.
func planRule(like *descriptors.Rule, l *limit, plan *named, fields []string) *descriptors.Rule {
	rule := new(descriptors.Rule)
	*rule = *like
	rule.Plan, rule.Unlimited, rule.Requests = plan.name, plan.rule.Unlimited, plan.rule.Requests
	rule.Name, rule.Replaces = plan.rule.Name, plan.rule.Replaces
	rule.Limits = slices.Clone(plan.rule.Limits) // metrics know each rule by its own
	of := func(name *string, replaces *[]string) {
		if l.Name != "" {
			*name = l.Name
		}
		if l.Replaces != nil {
			*replaces = l.Replaces
		}
	}
	if rule.Unlimited {
		of(&rule.Name, &rule.Replaces)
		rule.Laid = l.laid(fields)
	}
	for i := range rule.Limits {
		of(&rule.Limits[i].Name, &rule.Limits[i].Replaces)
		rule.Limits[i].Laid = l.laid(fields)
	}
	return rule
}

// replacesItself is the fault of a rule with a plan, one of whose limits has a name that it replaces:
// one of the two is from the plan, and the other from the rule. It is nil without one.
func replacesItself(rule *descriptors.Rule) *algorithms.SpecError {
	name, itself := rule.Name, slices.Contains(rule.Replaces, rule.Name)
	for i := range rule.Limits {
		if l := &rule.Limits[i]; slices.Contains(l.Replaces, l.Name) {
			name, itself = l.Name, true
		}
	}
	if !itself {
		return nil
	}
	return &algorithms.SpecError{Field: "plan", Message: fmt.Sprintf("the rule has a name or replaces with which the limit %q of the plan %q would replace itself", name, rule.Plan)}
}

// laid has the place of each of the fields that an overlay has set in l; nil if none is set.
func (l *limit) laid(fields []string) (laid descriptors.Laid) {
	for _, name := range fields {
		if place := l.Laid[name]; place != "" {
			if laid == nil {
				laid = descriptors.Laid{}
			}
			laid[name] = place
		}
	}
	return laid
}
