package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// DecisionLog is a [service.Observer] that logs some of the decisions. Its lines
// have a hash in place of the caller's bytes, so that a caller cannot forge a
// field and the log does not show who the caller's users are.
type DecisionLog struct {
	share   float64
	backend string
	hash    callerHash
	entries bool
	log     *slog.Logger
}

// NewDecisionLog returns a DecisionLog that picks the share, 0 to 1, of the
// decisions at random. The field backend of each line is the argument. The hash is an
// HMAC with the secret, so that nobody can find values by hashing guesses, or if there
// is no secret a short FNV.
//
// If entries is true, lines also have the fields domain and entries in clear text, so that
// the log can be replayed. A descriptor with several limits has them in the line of its
// first limit only, so that it is replayed once.
func NewDecisionLog(share float64, backend string, secret []byte, entries bool, log *slog.Logger) *DecisionLog {
	return &DecisionLog{share, backend, secret, entries, log}
}

// Observe implements [service.Observer].
func (l *DecisionLog) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.Decided && rand.Float64() < l.share {
			l.write(o, v, l.entries && (i == 0 || !v.SameDescriptor(&o.Verdicts[i-1])))
		}
	}
}

func (l *DecisionLog) write(o *service.Observation, v *service.Verdict, entries bool) {
	log := l.log
	if entries {
		log = log.With(slog.String("domain", descriptors.Printable(o.Domain)), slog.Any("entries", v.Entries))
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "decision",
		slog.String("decision", decisionNames[decisionOf(v, o.ShadowMode)]),
		slog.String("rule", v.Path(o.Domain)),
		slog.String("key", l.hash.of(o.Domain, v)),
		slog.String("strategy", v.Limit.Strategy.String()),
		slog.Uint64("hits", v.Hits),
		slog.String("limit", titleOf(limitOfRule(v))),
		slog.Uint64("requests_per_unit", uint64(v.Limit.Requests)),
		slog.Int64("remaining", remaining(v)),
		slog.Float64("retry_after", v.Is.RetryAfter.Seconds()),
		slog.String("policy", v.DecidedBy()),
		slog.String("backend", l.backend),
		slog.Int64("microseconds", o.Took.Microseconds()))
}

// remaining is 0 for a denial, also of a request that cost more than remains.
func remaining(v *service.Verdict) int64 {
	if !v.Is.Allowed {
		return 0
	}
	return v.Is.Remaining
}

// DebugLog is a [service.Observer] that logs the first requests of each second at
// debug level: the descriptors, the decision of each limit, and the answer. Its
// lines can identify customers.
type DebugLog struct {
	perSecond int64
	log       *slog.Logger
	second    atomic.Int64 // Unix time of the requests that logged counts
	logged    atomic.Int64
}

// NewDebugLog returns a DebugLog of that many requests per second.
func NewDebugLog(perSecond int, log *slog.Logger) *DebugLog {
	return &DebugLog{perSecond: int64(perSecond), log: log}
}

// Observe implements [service.Observer].
func (l *DebugLog) Observe(o *service.Observation) {
	now := time.Now().Unix()
	if second := l.second.Load(); second != now && l.second.CompareAndSwap(second, now) {
		l.logged.Store(0)
	}
	if l.logged.Add(1) <= l.perSecond {
		l.write(o)
	}
}

// results are the words for results.
var results = map[service.Result]string{
	service.Passed: "OK", service.Limited: "OVER_LIMIT", service.Invalid: "refused",
	service.NoRules: "no rules", service.NoStore: "store unavailable", service.CallGone: "caller gone",
}

func (l *DebugLog) write(o *service.Observation) {
	var asked, decided []string
	for _, d := range o.Request.Descriptors {
		asked = append(asked, descriptors.Pairs(d.Entries))
	}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		decision, rest := "not decided", ""
		if v.Decided {
			decision, rest = decisionNames[decisionOf(v, o.ShadowMode)], fmt.Sprintf(", remaining %d", remaining(v))
			if !v.Counted {
				rest += ", policy " + v.DecidedBy()
			}
		}
		decided = append(decided, fmt.Sprintf("%s: %s by %s (%v, limit %d%s)",
			descriptors.Pairs(v.Entries), decision, v.Path(o.Domain), v.Limit.Strategy, v.Limit.Requests, rest))
	}
	attrs := []slog.Attr{
		slog.String("domain", descriptors.Printable(o.Domain)),
		slog.String("result", results[o.Result]),
		slog.String("descriptors", strings.Join(asked, "; ")),
		slog.String("decisions", strings.Join(decided, "; ")),
		slog.Int64("microseconds", o.Took.Microseconds()),
	}
	if o.Err != nil {
		attrs = append(attrs, slog.String("error", descriptors.Printable(o.Err.Error())))
	}
	l.log.LogAttrs(context.Background(), slog.LevelDebug, "request", attrs...)
}
