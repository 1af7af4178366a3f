package service

import (
	"iter"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Observer is told how each request ended and when rules change, for metrics and
// logs.
type Observer interface {
	// Observe is called on the goroutine of each request, so by many at once.
	// It must not block, and must not keep o or anything that o points to.
	Observe(o *Observation)
	// Rules is called with new rules right before they come into force.
	Rules(*descriptors.Tree)
}

// Result is how a request ended.
type Result uint8

// The results.
const (
	Passed   Result = iota // answered OK
	Limited                // answered OVER_LIMIT
	Invalid                // refused: the request is wrong, or no rules are loaded
	NoStore                // not decided: the store failed to decide an operation, and no policy did
	CallGone               // not decided: the caller gave up
)

// Observation tells observers about one request and how it ended.
type Observation struct {
	Domain      string
	Descriptors int
	// Unknown: no rules have this domain, so the caller made its name up.
	Unknown bool
	Result  Result
	// Err says why a request was refused or not decided; nil for Passed and
	// Limited.
	Err error
	// Partial: the store left an operation undecided, and the request was answered
	// all the same (Passed or Limited), because a policy decided its limit, another
	// limit denied, or the undecided limit could not deny.
	Partial bool
	// ShadowMode: the service is in shadow mode, which denies nothing. Spared:
	// this request would have been denied without it.
	ShadowMode, Spared bool
	// Took is the time until the answer, without the wait in a queue.
	Took time.Duration
	// Verdicts has one element for each operation of the request but refunds.
	Verdicts []Verdict

	asked []descriptor
}

// Asked gives the entries of each descriptor, as the caller sent them.
func (o *Observation) Asked() iter.Seq[[]descriptors.Entry] {
	return func(yield func([]descriptors.Entry) bool) {
		for i := range o.asked {
			if !yield(o.asked[i].entries) {
				return
			}
		}
	}
}

// Verdict tells observers about one check: one limit of one descriptor.
type Verdict struct {
	// Rule matched the descriptor; nil when none did and Limit came with the
	// request.
	Rule     *descriptors.Rule
	Limit    *descriptors.Limit
	Override bool                // Limit came with the request
	Entries  []descriptors.Entry // of the descriptor, as the caller sent them
	Hits     uint64
	Shadow   bool // the rule is in shadow mode

	// Decided: the store or the policy of the limit decided. Is has no meaning
	// otherwise.
	Decided bool
	Is      algorithms.Decision
	// Counted: the store decided. The fields below have no meaning otherwise.
	Counted bool
	// After is the number of hits in use after the request. All: After includes
	// the denied hits, because the operation has ChargeDenied.
	After int64
	All   bool
	// Recalled: the denial came from the local cache instead of the store.
	Recalled bool
}

// Counted names decisions that the store made, in place of a policy.
const Counted = "counted"

// DecidedBy is Counted, or the name of the policy that decided. It has no meaning
// unless Decided.
func (v *Verdict) DecidedBy() string {
	if v.Counted {
		return Counted
	}
	return v.Limit.OnError.String()
}

// SameDescriptor reports whether v and o, verdicts of one Observation, belong to limits
// of the same descriptor of the request. The verdicts of a descriptor stand side by side.
func (v *Verdict) SameDescriptor(o *Verdict) bool {
	// They share the entries of the request, which are not copied.
	return len(v.Entries) > 0 && len(v.Entries) == len(o.Entries) && &v.Entries[0] == &o.Entries[0]
}

// tell tells the observers how the request ended. err is the error of decide.
func (d *decision) tell(err error) {
	o := &d.seen
	*o = Observation{
		Domain: d.request.domain, Descriptors: len(d.request.descriptors), Unknown: d.unknown,
		Result: d.result(err), Err: err, asked: d.request.descriptors, Partial: err == nil && d.partial, ShadowMode: d.service.cfg.ShadowMode, Spared: d.spared,
		Took: time.Since(d.service.epoch) - d.start, Verdicts: o.Verdicts[:0],
	}
	for i := range d.checks {
		if op := &d.batch.Ops[i]; !op.Refund {
			o.Verdicts = append(o.Verdicts, d.checks[i].verdict(op, &d.batch.Replies[i]))
		}
	}
	for _, observer := range d.service.cfg.Observers {
		observer.Observe(o)
	}
}

func (d *decision) result(err error) Result {
	switch {
	case d.gone:
		return CallGone
	case err != nil && d.partial:
		return NoStore
	case err != nil:
		return Invalid
	case d.over:
		return Limited
	}
	return Passed
}

func (c *check) verdict(op *backends.Op, r *backends.Reply) Verdict {
	o := c.outcome
	v := Verdict{
		Rule: o.rule, Limit: c.limit, Override: o.overrides != nil, Entries: o.asked.entries,
		Hits: min(o.asked.hits, uint64(backends.MaxCost)), Shadow: o.shadow(),
		Decided: c.decided, Is: c.is, Counted: c.counted,
	}
	if !c.counted {
		return v
	}
	v.Recalled = r.Recalled
	v.After = v.Limit.Capacity() - v.Is.Remaining
	// A denied cost can leave a fixed window below its limit: the cost did not fit
	// beside the cost of an earlier descriptor, which was then not charged because
	// the batch was refused. In that case no hit is beyond the limit.
	if op.ChargeDenied && (v.Is.Allowed || r.Value.Whole > v.Limit.Capacity()) {
		v.All, v.After = true, r.Value.Whole
	}
	return v
}
