package metrics

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
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
	newHash func() hash.Hash
	entries bool
	log     *slog.Logger
}

// NewDecisionLog returns a DecisionLog that picks the share, 0 to 1, of the
// decisions at random. The field backend of each line is the argument. The hash is an
// HMAC with the secret, so that nobody can find values by hashing guesses, or if there
// is no secret a short FNV.
func NewDecisionLog(share float64, backend string, secret []byte, log *slog.Logger) *DecisionLog {
	newHash := func() hash.Hash { return hmac.New(sha256.New, secret) }
	if len(secret) == 0 {
		newHash = func() hash.Hash { return fnv.New64a() }
	}
	return &DecisionLog{share: share, backend: backend, newHash: newHash, log: log}
}

// WithEntries adds the fields domain and entries, in clear text, to the lines of l, so
// that the log can be replayed. A descriptor with several limits has them in the line of
// its first limit only, so that it is replayed once.
func (l *DecisionLog) WithEntries() *DecisionLog {
	with := *l
	with.entries = true
	return &with
}

// Rules does nothing.
func (*DecisionLog) Rules(*descriptors.Tree) {}

// Observe implements [service.Observer].
func (l *DecisionLog) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.Decided && rand.Float64() < l.share {
			l.write(o, v, l.entries && (i == 0 || !v.SameDescriptor(&o.Verdicts[i-1])))
		}
	}
}

func (l *DecisionLog) write(o *service.Observation, v *service.Verdict, entries bool) {
	var shared []descriptors.Entry
	if !v.Override {
		shared = v.Rule.Shared
	}
	key := l.newHash()
	_, _ = key.Write(descriptors.AppendID(nil, o.Domain, v.Entries, shared))
	log := l.log
	if entries {
		log = log.With(slog.String("domain", o.Domain), slog.Any("entries", v.Entries))
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "decision",
		slog.String("decision", outcome(o, v)),
		slog.String("rule", ruleOf(o, v)),
		slog.String("key", hex.EncodeToString(key.Sum(nil)[:8])),
		slog.String("strategy", v.Limit.Strategy.String()),
		slog.Uint64("hits", v.Hits),
		slog.Uint64("limit", uint64(v.Limit.Requests)),
		slog.Int64("remaining", remaining(v)),
		slog.Float64("retry_after", v.Is.RetryAfter.Seconds()),
		slog.String("policy", v.DecidedBy()),
		slog.String("backend", l.backend),
		slog.Int64("microseconds", o.Took.Microseconds()))
}

// outcome is the word for a verdict that is decided.
func outcome(o *service.Observation, v *service.Verdict) string {
	switch {
	case v.Is.Allowed:
		return decisionNames[allowed]
	case v.Shadow || o.ShadowMode:
		return decisionNames[shadowed]
	}
	return decisionNames[denied]
}

// ruleOf is the path of the rule, or stands for a limit that the request brought.
func ruleOf(o *service.Observation, v *service.Verdict) string {
	if v.Override {
		return o.Domain + ".override"
	}
	return v.Rule.Path
}

// remaining is 0 for a denial, also of a request that cost more than remains.
func remaining(v *service.Verdict) int64 {
	if !v.Is.Allowed {
		return 0
	}
	return v.Is.Remaining
}
