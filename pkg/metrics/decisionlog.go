package metrics

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// LogOptions says which decisions have lines.
type LogOptions struct {
	// Share, 0 to 1, of the decisions of limits have a line "decision". They are picked at random.
	Share float64
	// Denials is all, first or off. Each denial has a line "denied", or the first of each counter
	// in a minute, of at most maxLogged counters.
	Denials string
	// Thresholds gives the first hit of each counter above each threshold of its limit in a window a
	// line "threshold", of which a minute has at most maxLogged.
	Thresholds bool
	// Requests is how many requests of each second have a line "request" at debug level: the
	// descriptors, the decision of each limit, and the answer. These lines can identify customers.
	Requests int
	// Values has the HMAC which stands for a caller, so that nobody can find values by hashing
	// guesses. Without it a short FNV does.
	Values *service.ValueHash
	// Entries adds the domain and the entries in clear text to lines "decision", so that the log can
	// be replayed. A descriptor with several limits has them in the line of its first limit only, so
	// that it is replayed once. In lines "denied" and "threshold" they stand in place of the hash.
	Entries bool
	Backend string // a field of lines "decision"
	Log     *slog.Logger
}

// DecisionLog is a [service.Observer] that logs decisions. Its lines have a hash in place of the
// caller's bytes, unless the options say otherwise, so that a caller cannot forge a field and the
// log does not show who the caller's users are.
type DecisionLog struct {
	LogOptions
	denials, thresholds *firsts

	second atomic.Int64 // Unix time of the requests that logged counts
	logged atomic.Int64
}

// NewDecisionLog returns a DecisionLog that has seen nothing.
func NewDecisionLog(o LogOptions) *DecisionLog {
	return &DecisionLog{LogOptions: o, denials: newFirsts(), thresholds: newFirsts()}
}

// On reports whether the options give any decision a line.
func (l *DecisionLog) On() bool {
	return l.Share > 0 || l.Denials != "off" || l.Thresholds || l.Requests > 0
}

// Observe implements [service.Observer].
func (l *DecisionLog) Observe(o *service.Observation) {
	for verdicts := range o.ByDescriptor() {
		for i := range verdicts {
			v := &verdicts[i]
			if l.Share > 0 && v.Decided && rand.Float64() < l.Share {
				l.decision(o, v, i == 0)
			}
			if o.Denied(v) && (l.Denials == "all" || l.Denials == "first" && l.denials.first(o, v, 0, time.Minute)) {
				l.caller("denied", o, v, o.Spares(v), slog.Float64("retry_after", v.Is.RetryAfter.Seconds()))
			}
			if v.Reached != nil && l.Thresholds {
				l.reached(o, v)
			}
		}
	}
	if l.Requests > 0 && l.inTime() {
		l.request(o)
	}
}

func (l *DecisionLog) decision(o *service.Observation, v *service.Verdict, first bool) {
	log := l.Log
	if l.Entries && first {
		log = log.With(slog.String("domain", descriptors.Printable(o.Domain)), slog.Any("entries", v.Entries))
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "decision",
		slog.String("decision", decisionNames[decisionOf(o, v)]),
		slog.String("rule", v.Path(o.Domain)),
		slog.String("key", l.hash(o.Domain, v)),
		slog.String("strategy", v.Limit.Strategy.String()),
		slog.Uint64("hits", v.Hits),
		slog.String("limit", titleOf(v)),
		slog.Uint64("requests_per_unit", uint64(v.Limit.Requests)),
		slog.Int64("remaining", v.Left()),
		slog.Float64("retry_after", v.Is.RetryAfter.Seconds()),
		slog.String("policy", v.DecidedBy()),
		slog.String("backend", l.Backend),
		slog.Int64("microseconds", o.Took.Microseconds()))
}

// reached logs the thresholds up to that of v, of which the counter had no line in its window.
func (l *DecisionLog) reached(o *service.Observation, v *service.Verdict) {
	window := v.Limit.Window
	if v.Limit.Strategy == algorithms.FixedWindow {
		window = v.Is.Reset // what is left of it
	}
	for i := range v.Limit.Thresholds {
		if t := &v.Limit.Thresholds[i]; t.At <= v.Reached.At && l.thresholds.first(o, v, t.At, window) {
			l.caller("threshold", o, v, v.Shadow || o.ShadowMode, slog.String("at", t.At.String()), slog.Int64("remaining", v.Is.Remaining))
		}
	}
}

// caller writes a line about a caller and a limit.
func (l *DecisionLog) caller(message string, o *service.Observation, v *service.Verdict, shadow bool, attrs ...slog.Attr) {
	who := slog.Any("entries", v.Entries)
	if !l.Entries {
		who = slog.String("key", l.hash(o.Domain, v))
	}
	all := append([]slog.Attr{
		slog.String("domain", descriptors.Printable(o.Domain)), who, slog.String("rule", v.Path(o.Domain)), slog.String("limit", titleOf(v)),
	}, attrs...)
	all = append(all, slog.String("policy", v.DecidedBy()))
	if shadow {
		all = append(all, slog.Bool("shadow", true))
	}
	l.Log.LogAttrs(context.Background(), slog.LevelInfo, message, all...)
}

// callerOf appends the name of the caller whom the limit of a verdict counts.
func callerOf(dst []byte, domain string, v *service.Verdict) []byte {
	return descriptors.AppendID(dst, domain, v.Entries, v.Shared())
}

// hash stands for the caller whom the limit of a verdict counts.
func (l *DecisionLog) hash(domain string, v *service.Verdict) string {
	caller := callerOf(nil, domain, v)
	if l.Values != nil {
		return l.Values.Hash(string(caller))[:16]
	}
	key := fnv.New64a()
	_, _ = key.Write(caller)
	return hex.EncodeToString(key.Sum(nil))
}

// inTime reports whether a request is one of the first of its second.
func (l *DecisionLog) inTime() bool {
	now := time.Now().Unix()
	if second := l.second.Load(); second != now && l.second.CompareAndSwap(second, now) {
		l.logged.Store(0)
	}
	return l.logged.Add(1) <= int64(l.Requests)
}

// results are the words for results.
var results = map[service.Result]string{
	service.Passed: "OK", service.Limited: "OVER_LIMIT", service.Invalid: "refused",
	service.NoRules: "no rules", service.NoStore: "store unavailable", service.CallGone: "caller gone",
}

func (l *DecisionLog) request(o *service.Observation) {
	var asked, decided []string
	for _, d := range o.Request.Descriptors {
		asked = append(asked, descriptors.Pairs(d.Entries))
	}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		decision, rest := "not decided", ""
		if v.Decided {
			decision, rest = decisionNames[decisionOf(o, v)], fmt.Sprintf(", remaining %d", v.Left())
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
	l.Log.LogAttrs(context.Background(), slog.LevelDebug, "request", attrs...)
}
