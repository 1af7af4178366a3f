package metrics

import (
	"log/slog"
	"time"

	"example.org/rls/pkg/service"
)

// DenialLog is a [service.Observer] that logs denials: all of them, or the first of each
// counter in a minute. Lines have the caller's hash as those of a [DecisionLog] have.
type DenialLog struct {
	callerLog
	first  bool
	firsts firsts
}

// NewDenialLog returns a DenialLog, which logs the first denial of each counter in a minute, of
// at most maxLogged counters, or if first is false all. Lines have the field key, a hash that
// is made with the secret, or if entries is true the entries in clear text.
func NewDenialLog(first bool, secret []byte, entries bool, log *slog.Logger) *DenialLog {
	return &DenialLog{callerLog{secret, entries, log}, first, newFirsts()}
}

// Observe implements [service.Observer].
func (l *DenialLog) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if !o.Denied(v) || l.first && !l.firsts.first(o, v, 0, time.Minute) {
			continue
		}
		attrs := []slog.Attr{slog.Float64("retry_after", v.Is.RetryAfter.Seconds()), slog.String("policy", v.DecidedBy())}
		if o.Spares(v) {
			attrs = append(attrs, slog.Bool("shadow", true))
		}
		l.write("denied", o, v, attrs...)
	}
}
