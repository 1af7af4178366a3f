package rules

import (
	"errors"
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
			r.warn(l.from.At, l.path, "is a fixed_window in spite of DEFAULT_STRATEGY, because %s has that strategy and the same window", o.path)
			return plain
		}
	}
	_, err := r.limits.get(spec)
	var wrong *algorithms.SpecError
	if !errors.As(err, &wrong) {
		return spec
	}
	switch _, otherwise := r.limits.get(plain); {
	case otherwise != nil:
		// The limit would be wrong without the default, too.
	case wrong.Field == "burst":
		spec.Burst = 0
		r.warn(l.from.At, l.path, "has the strategy's own burst in spite of DEFAULT_BURST: %s", wrong.Message)
	case spec.Strategy == algorithms.SlidingLog:
		spec.Strategy = algorithms.SlidingWindow
		r.warn(l.from.At, l.path, "is a sliding_window in spite of DEFAULT_STRATEGY: %s", wrong.Message)
	case strings.HasPrefix(wrong.Field, "lease"):
		spec = plain
		r.warn(l.from.At, l.path, "is a fixed_window in spite of DEFAULT_STRATEGY, because of its lease: %s", wrong.Message)
	default:
		spec = plain
	}
	return spec
}

// unmatched is the limit of an override without a rule.
func (o *Options) unmatched() descriptors.Limit {
	limit, err := algorithms.New(algorithms.Spec{Strategy: o.Strategy, Requests: algorithms.MaxLogRequests, Window: descriptors.Second.Duration(), Burst: o.Burst})
	if err != nil {
		return descriptors.Limit{OnError: inherited}
	}
	return descriptors.Limit{Limit: limit, Unit: descriptors.Second, Multiplier: 1, WrittenBurst: o.Burst, OnError: inherited, Share: o.Share}
}
