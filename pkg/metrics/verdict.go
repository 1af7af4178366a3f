package metrics

import (
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// decisionOf is the decision of v, a verdict of o that is decided.
func decisionOf(o *service.Observation, v *service.Verdict) int {
	switch {
	case v.Is.Allowed:
		return allowed
	case v.Shadow || o.ShadowMode:
		return shadowed
	}
	return denied
}

// limitOfRule is the limit of the rule by which a verdict was made, also if a request or a row
// brought another one in its place. It is nil if the rule has none, or no rule matched.
func limitOfRule(v *service.Verdict) *descriptors.Limit {
	l := v.Limit
	if v.Override {
		if v.Rule == nil {
			return nil
		}
		l = v.Rule.Main()
	}
	if l != nil && l.As != nil {
		return l.As
	}
	return l
}

// titleOf is the title of limitOfRule: callers make the amounts of overrides up.
func titleOf(v *service.Verdict) string {
	if l := limitOfRule(v); l != nil {
		return l.Title()
	}
	return ownTitle
}
