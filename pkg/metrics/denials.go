package metrics

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/service"
)

// DenialLog is a [service.Observer] that logs denials: all of them, or the first of each
// counter in a minute. Lines have the caller's hash as those of a [DecisionLog] have.
type DenialLog struct {
	hash    callerHash
	entries bool
	log     *slog.Logger

	first bool
	seed  maphash.Seed
	mu    sync.Mutex
	// recent and before have the times of lines, in µs, by the hash of their counter: recent
	// those since turned, and before the others of the last minute.
	recent, before map[uint64]int64
	turned         int64
}

// NewDenialLog returns a DenialLog, which logs the first denial of each counter in a minute, of
// at most maxLogged counters, or if first is false all. Lines have the field key, a hash that
// is made with the secret, or if entries is true the entries in clear text.
func NewDenialLog(first bool, secret []byte, entries bool, log *slog.Logger) *DenialLog {
	return &DenialLog{
		hash: secret, entries: entries, log: log,
		first: first, seed: maphash.MakeSeed(), recent: map[uint64]int64{}, before: map[uint64]int64{},
	}
}

// maxLogged bounds the lines of a minute about the first denials of counters.
const maxLogged = 10_000

// Observe implements [service.Observer].
func (l *DenialLog) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; o.Denied(v) && (!l.first || l.isFirst(o, v)) {
			l.write(o, v)
		}
	}
}

// limited tells the counters of one caller apart by their limits, and callers by their hash.
type limited struct {
	caller   uint64
	name     string
	strategy algorithms.Strategy
	requests uint32
	window   time.Duration
}

// isFirst reports whether no denial of the counter was logged in the last minute.
func (l *DenialLog) isFirst(o *service.Observation, v *service.Verdict) bool {
	const minute = int64(time.Minute / time.Microsecond)
	var room [256]byte
	hash := maphash.Comparable(l.seed, limited{
		maphash.Bytes(l.seed, callerOf(room[:0], o.Domain, v)), v.Limit.Name, v.Limit.Strategy, v.Limit.Requests, v.Limit.Window,
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.At >= l.turned+minute || o.At < l.turned-minute {
		clear(l.before)
		l.recent, l.before, l.turned = l.before, l.recent, o.At
	}
	last, known := l.recent[hash]
	if !known {
		last, known = l.before[hash]
	}
	if known && o.At < last+minute && o.At > last-minute || len(l.recent) >= maxLogged {
		return false
	}
	l.recent[hash] = o.At
	return true
}

func (l *DenialLog) write(o *service.Observation, v *service.Verdict) {
	who := slog.String("key", l.hash.of(o.Domain, v))
	if l.entries {
		who = slog.Any("entries", v.Entries)
	}
	attrs := []slog.Attr{
		slog.String("domain", o.Domain), who, slog.String("rule", ruleOf(o.Domain, v)), slog.String("limit", titleOf(limitOfRule(v))),
		slog.Float64("retry_after", v.Is.RetryAfter.Seconds()), slog.String("policy", v.DecidedBy()),
	}
	if o.Spares(v) {
		attrs = append(attrs, slog.Bool("shadow", true))
	}
	l.log.LogAttrs(context.Background(), slog.LevelInfo, "denied", attrs...)
}
