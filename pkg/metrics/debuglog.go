package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

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

// Rules does nothing.
func (*DebugLog) Rules(*descriptors.Tree) {}

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
	service.NoStore: "store unavailable", service.CallGone: "caller gone",
}

func (l *DebugLog) write(o *service.Observation) {
	var asked, decided []string
	for entries := range o.Asked() {
		asked = append(asked, descriptors.Pairs(entries))
	}
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		decision := "not decided"
		if v.Decided {
			decision = outcome(o, v)
		}
		text := fmt.Sprintf("%s: %s by %s (%v, limit %d", descriptors.Pairs(v.Entries), decision, ruleOf(o, v), v.Limit.Strategy, v.Limit.Requests)
		if v.Decided {
			text += fmt.Sprintf(", remaining %d", remaining(v))
			if !v.Counted {
				text += ", policy " + v.DecidedBy()
			}
		}
		decided = append(decided, text+")")
	}
	attrs := []slog.Attr{
		slog.String("domain", o.Domain),
		slog.String("result", results[o.Result]),
		slog.String("descriptors", strings.Join(asked, "; ")),
		slog.String("decisions", strings.Join(decided, "; ")),
		slog.Int64("microseconds", o.Took.Microseconds()),
	}
	if o.Err != nil {
		attrs = append(attrs, slog.String("error", o.Err.Error()))
	}
	l.log.LogAttrs(context.Background(), slog.LevelDebug, "request", attrs...)
}
