package metrics

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// DecisionLog is a [service.Observer] that logs some of the decisions. Its lines
// have a hash in place of the caller's bytes, so that a caller cannot forge a
// field and the log does not show who the caller's users are.
type DecisionLog struct {
	share   float64
	backend string
	log     *slog.Logger
}

// NewDecisionLog returns a DecisionLog that picks the share, 0 to 1, of the
// decisions at random. The field backend of each line is the argument.
func NewDecisionLog(share float64, backend string, log *slog.Logger) *DecisionLog {
	return &DecisionLog{share, backend, log}
}

// Rules does nothing.
func (*DecisionLog) Rules(*descriptors.Tree) {}

// Observe implements [service.Observer].
func (l *DecisionLog) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.Decided && rand.Float64() < l.share {
			l.write(o, v)
		}
	}
}

func (l *DecisionLog) write(o *service.Observation, v *service.Verdict) {
	decision := decisionNames[allowed]
	switch {
	case v.Is.Allowed:
	case v.Shadow || o.ShadowMode:
		decision = decisionNames[shadowed]
	default:
		decision = decisionNames[denied]
	}
	rule := o.Domain + ".override"
	var shared []string
	if !v.Override {
		rule, shared = v.Rule.Path, v.Rule.Shared
	}
	remaining := v.Is.Remaining
	if !v.Is.Allowed {
		remaining = 0
	}
	key := fnv.New64a()
	_, _ = key.Write(descriptors.AppendID(nil, o.Domain, v.Entries, shared))
	l.log.LogAttrs(context.Background(), slog.LevelInfo, "decision",
		slog.String("decision", decision),
		slog.String("rule", rule),
		slog.String("key", fmt.Sprintf("%016x", key.Sum64())),
		slog.String("strategy", v.Limit.Strategy.String()),
		slog.Uint64("hits", v.Hits),
		slog.Uint64("limit", uint64(v.Limit.Requests)),
		slog.Int64("remaining", remaining),
		slog.Float64("retry_after", v.Is.RetryAfter.Seconds()),
		slog.String("backend", l.backend),
		slog.Int64("microseconds", o.Took.Microseconds()))
}
