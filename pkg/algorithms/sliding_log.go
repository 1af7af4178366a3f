package algorithms

import (
	"fmt"
	"math"

	"example.org/rls/pkg/backends"
)

// slidingLog stores the time and cost of every admitted charge, and admits a cost
// if the cost and the costs of the last window sum to at most the limit. It is
// exact and takes memory for each charge, so the limit is bounded.
var slidingLog = row{
	name: "sliding_log",
	kind: backends.List,
	tag:  "sl",
	prepare: func(l *Limit) error {
		if l.Requests > MaxLogRequests {
			return &SpecError{"requests_per_unit", fmt.Sprintf(
				"sliding_log remembers every hit and takes at most %d; use `strategy: sliding_window` for more", MaxLogRequests)}
		}
		return nil
	},
	plan:  planLog,
	judge: judgeLog,
}

// planLog plans a charge of a limit that counts in a list of costs.
func planLog(l *Limit, op *backends.Op, c Charge) {
	op.Until = c.Now + l.window
}

func judgeLog(l *Limit, op *backends.Op, r *backends.Reply) Decision {
	d := Decision{
		Allowed:    op.Verb.GivesBack() || r.Admitted == op.Times,
		Remaining:  int64(l.Requests) - r.Value.Whole,
		Reset:      micros(r.Until - r.Now),
		RetryAfter: micros(r.RetryAt - r.Now),
	}
	if r.RetryAt == math.MaxInt64 {
		d.RetryAfter = l.Window
	}
	return d
}
