package metrics

import (
	"log/slog"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/service"
)

// ThresholdLog is a [service.Observer] that logs the first hit of each counter above each
// threshold of its limit in a window. Lines have the caller's hash as those of a [DecisionLog]
// have.
type ThresholdLog struct {
	callerLog
	firsts firsts
}

// NewThresholdLog returns a ThresholdLog of at most maxLogged lines in a minute. Lines have the
// field key, a hash that is made with the secret, or if entries is true the entries in clear
// text.
func NewThresholdLog(secret []byte, entries bool, log *slog.Logger) *ThresholdLog {
	return &ThresholdLog{callerLog{secret, entries, log}, newFirsts()}
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
			t := &v.Limit.Thresholds[j]
			if t.At > v.Reached.At || !l.firsts.first(o, v, t.At, window) {
				continue
			}
			attrs := []slog.Attr{slog.String("at", t.At.String()), slog.Int64("remaining", v.Is.Remaining), slog.String("policy", v.DecidedBy())}
			if v.Shadow || o.ShadowMode {
				attrs = append(attrs, slog.Bool("shadow", true))
			}
			l.write("threshold", o, v, attrs...)
		}
	}
}
