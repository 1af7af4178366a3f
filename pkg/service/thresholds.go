package service

import (
	"context"
	"maps"
	"time"
)

// reach finds the thresholds that apply to a request that passes: of each limit that the
// request was charged to, the highest that is reached. A limit that the policy allow or deny
// decided has none, because its use is not known. A threshold of a limit that is not enforced
// adds no headers and no delay.
func (o *Outcome) reach(ctx context.Context) {
	p := &o.plan
	for i := range p.Targets {
		t, s := &p.Targets[i], &o.Statuses[i]
		if t.Refund || s.Denied || s.ShadowDenied || s.Undecided != nil {
			continue
		}
		checks := p.checks(t)
		for j := range checks {
			v, r := &checks[j], checks[j].reply
			if v.Limit.Thresholds == nil || r.Err != nil || !v.Is.Allowed {
				continue
			}
			capacity, remaining := v.Limit.Capacity(), v.Is.Remaining
			if v.Pool != nil {
				remaining = v.Limit.Judge(v.op, r).Remaining
			}
			if n := r.Replicas; n > 0 { // Is.Remaining is of this process's share
				capacity = (capacity + n - 1) / n
			}
			if v.Reached = v.Limit.Reached(capacity-remaining, capacity); v.Reached == nil {
				continue
			}
			o.Reached = true
			if v.Shadow || p.cfg.ShadowMode {
				continue
			}
			o.Headers = append(o.Headers, v.Reached.Headers...)
			o.ResponseHeaders = append(o.ResponseHeaders, v.Reached.ResponseHeaders...)
			left := min(patience(ctx), v.Reached.Delay.Microseconds())
			o.Delay = max(o.Delay, time.Duration(left)*time.Microsecond)
		}
	}
}

// Thresholds lists the thresholds that apply, as dynamic metadata has them: each with the
// metadata, the rule and the part of the limit. It is nil if none applies.
func (o *Outcome) Thresholds(domain string) (list []any) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Reached == nil {
			continue
		}
		fields := map[string]any{}
		maps.Copy(fields, v.Reached.Metadata)
		fields["rule"] = v.Name(domain)
		fields["at"] = v.Reached.At.String()
		list = append(list, fields)
	}
	return list
}
