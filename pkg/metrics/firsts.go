package metrics

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// callerLog writes lines about callers and their limits.
type callerLog struct {
	hash    callerHash
	entries bool // in clear text, in place of the hash
	log     *slog.Logger
	firsts  *firsts // nil if each counter has any number of lines
}

func (l *callerLog) write(message string, o *service.Observation, v *service.Verdict, shadow bool, attrs ...slog.Attr) {
	who := slog.String("key", l.hash.of(o.Domain, v))
	if l.entries {
		who = slog.Any("entries", v.Entries)
	}
	all := append([]slog.Attr{
		slog.String("domain", descriptors.Printable(o.Domain)), who, slog.String("rule", v.Path(o.Domain)), slog.String("limit", titleOf(limitOfRule(v))),
	}, attrs...)
	all = append(all, slog.String("policy", v.DecidedBy()))
	if shadow {
		all = append(all, slog.Bool("shadow", true))
	}
	l.log.LogAttrs(context.Background(), slog.LevelInfo, message, all...)
}

// DenialLog is a [service.Observer] that logs denials: all of them, or the first of each
// counter in a minute. Lines have the caller's hash as those of a [DecisionLog] have.
type DenialLog struct{ callerLog }

// NewDenialLog returns a DenialLog, which logs the first denial of each counter in a minute, of
// at most maxLogged counters, or if first is false all. Lines have the field key, a hash that
// is made with the secret, or if entries is true the entries in clear text.
func NewDenialLog(first bool, secret []byte, entries bool, log *slog.Logger) *DenialLog {
	l := &DenialLog{callerLog{hash: secret, entries: entries, log: log}}
	if first {
		l.firsts = newFirsts()
	}
	return l
}

// Observe implements [service.Observer].
func (l *DenialLog) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if o.Denied(v) && (l.firsts == nil || l.firsts.first(o, v, 0, time.Minute)) {
			l.write("denied", o, v, o.Spares(v), slog.Float64("retry_after", v.Is.RetryAfter.Seconds()))
		}
	}
}

// ThresholdLog is a [service.Observer] that logs the first hit of each counter above each
// threshold of its limit in a window. Lines have the caller's hash as those of a [DecisionLog]
// have.
type ThresholdLog struct{ callerLog }

// NewThresholdLog returns a ThresholdLog of at most maxLogged lines in a minute. Lines have the
// field key, a hash that is made with the secret, or if entries is true the entries in clear
// text.
func NewThresholdLog(secret []byte, entries bool, log *slog.Logger) *ThresholdLog {
	return &ThresholdLog{callerLog{secret, entries, log, newFirsts()}}
}

// Observe implements [service.Observer].
func (l *ThresholdLog) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Reached == nil {
			continue
		}
		window := v.Limit.Window
		if v.Limit.Strategy == algorithms.FixedWindow {
			window = v.Is.Reset // what is left of it
		}
		for j := range v.Limit.Thresholds {
			if t := &v.Limit.Thresholds[j]; t.At <= v.Reached.At && l.firsts.first(o, v, t.At, window) {
				l.write("threshold", o, v, v.Shadow || o.ShadowMode, slog.String("at", t.At.String()), slog.Int64("remaining", v.Is.Remaining))
			}
		}
	}
}

// limited tells the counters of one caller apart by their limits, and callers by their hash.
// At is that of a threshold of the limit, or 0.
type limited struct {
	caller   uint64
	name     string
	strategy algorithms.Strategy
	requests uint32
	window   time.Duration
	at       algorithms.Percent
}

// firsts remembers which counters had a line, so that each has one in a while.
type firsts struct {
	seed maphash.Seed
	mu   sync.Mutex
	// until has the times in µs before which counters have no other line, by the hash of their
	// limited. before has those of the counters before these.
	until, before map[uint64]int64
	minute        int64 // when the minute of lines began, in µs
	lines         int
}

const (
	maxLogged     = 10_000  // lines in a minute
	maxRemembered = 100_000 // counters in each map, in about 5 MiB
)

func newFirsts() *firsts { return &firsts{seed: maphash.MakeSeed(), until: map[uint64]int64{}} }

// first reports whether the counter of v has a line now, and then has no other one for the
// time of quiet. Lines of a clock that has been set back since do not count. Beyond
// 2 × maxRemembered counters the older half is forgotten, and may have a line twice.
func (f *firsts) first(o *service.Observation, v *service.Verdict, at algorithms.Percent, quiet time.Duration) bool {
	const minute = int64(time.Minute / time.Microsecond)
	var room [256]byte
	l := v.Limit
	longest := quiet // until a counter has its next line
	if at > 0 {
		longest = max(quiet, l.Window) // a month of the calendar may be longer than its Window
	}
	hash := maphash.Comparable(f.seed, limited{maphash.Bytes(f.seed, callerOf(room[:0], o.Domain, v)), l.Name, l.Strategy, l.Requests, l.Window, at})
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.At >= f.minute+minute || o.At < f.minute-minute {
		f.minute, f.lines = o.At, 0
	}
	until, known := f.until[hash]
	if !known {
		until = f.before[hash]
	}
	if o.At < until && until-o.At <= longest.Microseconds() || f.lines >= maxLogged {
		return false
	}
	if len(f.until) >= maxRemembered {
		f.until, f.before = map[uint64]int64{}, f.until
	}
	f.until[hash] = o.At + quiet.Microseconds()
	f.lines++
	return true
}
