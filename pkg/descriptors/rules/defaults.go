package rules

import (
	"strings"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// withDefaults gives a limit without a strategy the default one. A limit that
// could not have the default keeps a strategy that it can have, and a warning
// says so; a default is never a reason to refuse a rule.
func (r *reader) withDefaults(l *limit, spec algorithms.Spec, several []limit) algorithms.Spec {
	if r.opts.Strategy == algorithms.FixedWindow || l.from.Has("strategy") || spec.FromFirstHit {
		return spec
	}
	plain := spec
	spec.Strategy = r.opts.Strategy
	if spec.Burst == 0 {
		spec.Burst = r.opts.Burst
	}
	for i := range several {
		o := &several[i]
		written := descriptors.ParseUnit(o.unit).Duration()
		if o != l && o.from.Has("strategy") && sameCounter(spec, algorithms.Spec{Strategy: o.spec.Strategy, Window: written * time.Duration(o.Multiplier)}) {
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
	case spec.Strategy == algorithms.SlidingLog:
		spec.Strategy = algorithms.SlidingWindow
		r.warnings.Add(l.from.At, l.path, "is a sliding_window in spite of DEFAULT_STRATEGY: %s", wrong.Message)
	case strings.HasPrefix(wrong.Field, "lease"):
		spec = plain
		r.warnings.Add(l.from.At, l.path, "is a fixed_window in spite of DEFAULT_STRATEGY, because of its lease: %s", wrong.Message)
	default:
		spec = plain
	}
	return spec
}

// unmatched is the limit of an override without a rule.
func (o *Options) unmatched() descriptors.Limit {
	// It stays nil, for a fixed_window, if the strategy cannot have the burst.
	limit, _ := algorithms.New(algorithms.Spec{Strategy: o.Strategy, Requests: algorithms.MaxLogRequests, Window: descriptors.Second.Duration(), Burst: o.Burst})
	return descriptors.Limit{Limit: limit, Unit: descriptors.Second, Multiplier: 1, WrittenBurst: o.Burst, OnError: inherited, Share: o.Share}
}

// inherited marks, until all files are read, a limit or a domain without a policy
// of its own. No limit of a loaded tree has it.
const inherited = descriptors.Policy(descriptors.Policies)

// policies gives each limit of the tree the nearest policy: its own, else its
// domain's, else that of the options. It returns a warning about the first limit
// that every process would decide on its own as if it were alone.
func (c *compiler) policies(tree *descriptors.Tree) (warnings []Problem) {
	for _, d := range tree.Domains() {
		inherit(&d.Default.OnError, c.opts.OnError)
	}
	var first *descriptors.Rule // with the policy local
	tree.Each(func(d *descriptors.Domain, r *descriptors.Rule) {
		c.turns.Next()
		for i := range r.Limits {
			l := &r.Limits[i]
			inherit(&l.OnError, d.Default.OnError)
			if l.OnError == descriptors.PolicyLocal && (first == nil || r.Pos.Compare(first.Pos) < 0) {
				first = r
			}
		}
	})
	if c.opts.ReplicasUnknown && first != nil {
		warnings = append(warnings, Problem{Position: first.Pos, Field: "on_error",
			Message: "local gives this limit, and every other limit with that policy, to each process in full while the store is away; set REPLICAS or REPLICAS_DNS, so that processes that share the store divide it"})
	}
	return warnings
}

// inherit sets a policy that is inherited.
func inherit(p *descriptors.Policy, from descriptors.Policy) {
	if *p == inherited {
		*p = from
	}
}
