package service

import (
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Observer is told what becomes of requests and rules, for metrics and logs.
type Observer interface {
	// Observe is called on each request's own goroutine, by many at once. It
	// must not block, nor keep o or what o points to.
	Observe(o *Observation)
	// Rules is called with the rules that come in force, before they do.
	Rules(*descriptors.Tree)
}

// Result is how a request ended.
type Result uint8

// The results.
const (
	Passed   Result = iota // answered OK
	Limited                // answered OVER_LIMIT
	Invalid                // refused: it makes no sense, or there are no rules
	NoStore                // not decided: the store did not answer in time
	CallGone               // not decided: the caller gave up
)

// Observation is what became of one request.
type Observation struct {
	Domain      string
	Descriptors int
	// Unknown: no rules have this domain, so its name is the caller's.
	Unknown bool
	Result  Result
	// ShadowMode: all denials are shadow ones; Spared: this request's was.
	ShadowMode, Spared bool
	// Took is the time up to the answer, without waiting in a queue.
	Took time.Duration
	// Verdicts has each limit that the store was asked about. Limits that are
	// replaced are none, and refunds are not counted.
	Verdicts []Verdict
}

// Verdict is what one limit said to one descriptor.
type Verdict struct {
	// Rule matched the descriptor; nil when none did and Limit came with the
	// request.
	Rule     *descriptors.Rule
	Limit    *descriptors.Limit
	Override bool                // Limit came with the request
	Entries  []descriptors.Entry // the caller's bytes
	Hits     uint64
	Shadow   bool // the rule is in shadow mode

	// Decided: the store answered. What follows has no meaning otherwise.
	Decided bool
	Is      algorithms.Decision
	// After is the hits in use afterwards; it includes denied ones only where
	// All, the way in which Envoy's fixed windows count, is set.
	After int64
	All   bool
	// Recalled: the denial came from the local cache, not from the store.
	Recalled bool
}

// Capacity is how many hits fit at once: the burst of limits that have one,
// else the requests per window.
func (v *Verdict) Capacity() uint64 {
	if v.Limit.Burst > 0 {
		return uint64(v.Limit.Burst)
	}
	return uint64(v.Limit.Requests)
}

// tell tells the observers how the request ended.
func (d *decision) tell(resp *pb.RateLimitResponse, err error) {
	o := &d.seen
	*o = Observation{
		Domain: d.request.GetDomain(), Descriptors: len(d.request.GetDescriptors()), Unknown: d.unknown,
		Result: d.result(resp, err), ShadowMode: d.service.cfg.ShadowMode, Spared: d.spared,
		Took: time.Since(d.service.epoch) - d.start, Verdicts: o.Verdicts[:0],
	}
	decided := err == nil
	for i := range d.checks {
		if !d.batch.Ops[i].Refund {
			o.Verdicts = append(o.Verdicts, d.verdict(i, decided))
		}
	}
	for _, observer := range d.service.cfg.Observers {
		observer.Observe(o)
	}
}

func (d *decision) result(resp *pb.RateLimitResponse, err error) Result {
	switch {
	case d.failed != 0:
		return d.failed
	case err != nil:
		return Invalid
	case resp.OverallCode == pb.RateLimitResponse_OVER_LIMIT:
		return Limited
	}
	return Passed
}

func (d *decision) verdict(i int, decided bool) Verdict {
	c, op := &d.checks[i], &d.batch.Ops[i]
	desc := d.request.Descriptors[c.descriptor]
	from := len(d.entries)
	d.entries = appendEntries(d.entries, desc)
	v := Verdict{
		Rule: c.outcome.rule, Limit: c.limit, Override: c.outcome.overrides != nil, Entries: d.entries[from:],
		Hits: min(hits(d.request, desc), uint64(backends.MaxCost)), Shadow: c.outcome.shadow(), Decided: decided,
	}
	if !decided {
		return v
	}
	v.Is = c.is
	v.Recalled = d.batch.Replies[i].Recalled
	v.All = op.Kind == backends.Counter && op.Max == backends.NoMax
	if v.All {
		v.After = d.batch.Replies[i].Value.Whole
	} else {
		v.After = int64(v.Capacity()) - v.Is.Remaining
	}
	return v
}
