package service

import (
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// minRetryAfter is the shortest wait after a denial by policy. A breaker tries a
// server that is away again within half a second.
const minRetryAfter = time.Second

// Policy decides l while the store cannot.
func (c *Config) Policy(l *descriptors.Limit) descriptors.Policy {
	if l.OnError == descriptors.PolicyLocal && !c.Local {
		return descriptors.PolicyError
	}
	return l.OnError
}

// IfUndecided is Op.IfUndecided of a charge or refund of l. A limit of 0 denies its
// hits, whatever the store would reply.
func (c *Config) IfUndecided(l *descriptors.Limit, refund bool) backends.Undecided {
	switch onError := c.Policy(l); {
	case l.Requests == 0 && !refund:
		return backends.Refuses
	case onError == descriptors.PolicyError:
		return backends.Open
	case onError == descriptors.PolicyDeny && !refund:
		return backends.Refuses
	case onError == descriptors.PolicyLocal:
		return backends.Local
	}
	return backends.Fits
}

// byPolicy is the decision of op, an operation of l that the store left undecided,
// by the policy allow or deny: the limit is shown as if nobody had used it.
func byPolicy(l *descriptors.Limit, op *backends.Op) algorithms.Decision {
	empty := op.Unused()
	unused := l.Judge(op, &empty)
	is := algorithms.Decision{Allowed: op.IfUndecided == backends.Fits, Reset: unused.Reset}
	switch {
	case !is.Allowed:
		is.RetryAfter = max(unused.RetryAfter, minRetryAfter)
	case unused.Allowed:
		is.Remaining = unused.Remaining
	}
	return is
}
