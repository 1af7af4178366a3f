package service

import (
	"cmp"
	"iter"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Observer is told how each request ended, for metrics and logs.
type Observer interface {
	// Observe is called on the goroutine of each request, so by many at once.
	// Observe must not block, and must not keep o or anything that o points to, except the
	// Rule and the Limit of a Verdict, which never change.
	Observe(o *Observation)
}

// Result is how a request ended.
type Result uint8

// The results.
const (
	Passed   Result = iota // answered OK
	Limited                // answered OVER_LIMIT
	Invalid                // refused: the request is wrong
	NoRules                // refused: no rules are loaded
	NoStore                // not decided: the store failed to decide an operation, and no policy did
	CallGone               // not decided: the caller gave up

	// Results is the number of results.
	Results = int(iota)
)

// Observation tells observers about one request and how it ended.
type Observation struct {
	Request     *Request // as the caller sent it
	Domain      string
	Descriptors int
	// Unknown: no rules have this domain, so the caller made its name up.
	Unknown bool
	Result  Result
	// Err says why a request was refused or not decided; nil for Passed and
	// Limited.
	Err error
	// Partial: the store left an operation undecided, and the request was answered
	// (Passed or Limited) because a policy decided its limit, another limit denied,
	// or the undecided limit could not deny.
	Partial bool
	// ShadowMode: the service is in shadow mode, which denies nothing. Spared:
	// this request would have been denied without it.
	ShadowMode, Spared bool
	// Beyond names the cap that the request exceeds ([Request.Beyond]); "" for requests within the
	// caps, and to unknown domains.
	Beyond string
	// At is the time of the decisions, in µs since the epoch on the store's clock; 0 if no
	// limit was asked.
	At int64
	// Took is the time until the answer, without the wait in a queue.
	Took time.Duration
	// Verdicts has one element for each operation of the request but refunds. Those of a descriptor
	// stand side by side.
	Verdicts []Verdict
	// Accounts has the verdicts, also of refunds, that tell of reservations or of hits beyond an
	// overdraft (Verdict.Account).
	Accounts []*Verdict
}

// Denied reports whether v, a verdict of o, is a denial of a request that was answered.
func (o *Observation) Denied(v *Verdict) bool {
	return v.Decided && !v.Is.Allowed && (o.Result == Limited || o.Result == Passed)
}

// Spares reports whether a request with the denial v was answered OK: in shadow mode, or
// because another descriptor in quota mode passed.
func (o *Observation) Spares(v *Verdict) bool { return v.Shadow || o.Result == Passed }

// ByDescriptor gives the verdicts of each descriptor of the request.
func (o *Observation) ByDescriptor() iter.Seq[[]Verdict] {
	return func(yield func([]Verdict) bool) {
		for rest, n := o.Verdicts, 0; len(rest) > 0; rest = rest[n:] {
			for n = 1; n < len(rest) && rest[0].sameDescriptor(&rest[n]); n++ {
			}
			if !yield(rest[:n:n]) {
				return
			}
		}
	}
}

// sameDescriptor reports whether v and w belong to limits of the same descriptor of the request.
func (v *Verdict) sameDescriptor(w *Verdict) bool {
	// They share the entries of the request, which are not copied.
	return len(v.Entries) > 0 && len(v.Entries) == len(w.Entries) && &v.Entries[0] == &w.Entries[0]
}

// Verdict is one limit that one descriptor of a request is checked against, and its decision.
type Verdict struct {
	// Rule matched the descriptor; nil if no rule did and Limit came with the
	// request.
	Rule     *descriptors.Rule
	Limit    *descriptors.Limit
	Override bool                // Limit came with the request
	Key      string              // of the cell, as the Store of the service is given it
	Entries  []descriptors.Entry // of the descriptor, as the caller sent them
	Hits     uint64
	Shadow   bool // the rule is in shadow mode, or the limit is watched
	// Watched: the limit is watched for this key (its own shadow_mode, or a rollout). It has no
	// part in the answer.
	Watched bool

	// Pool is the decision of the pool that Limit has asked because it had no room itself; nil if
	// it has asked none. Its Is.Allowed is whether the hits were borrowed: the pool and what one
	// key may borrow had room for them.
	Pool  *Verdict
	asker *descriptors.Limit // of the decision of a pool: the limit that asked it

	// Decided: the store or the policy of the limit decided. Is has no meaning
	// otherwise.
	Decided bool
	Is      algorithms.Decision
	// Reached is the threshold of Limit that applies to the request; nil if none does.
	Reached *descriptors.Threshold
	// Counted: the store decided. The fields below have no meaning otherwise.
	Counted bool
	// After is the number of hits in use after the request. All: After includes
	// the denied hits, because the operation has the verb Count.
	After int64
	All   bool
	// Account tells of a reservation or an overdraft; nil if there is nothing to tell.
	Account *algorithms.Account
	// Recalled: the denial came from the local cache instead of the store.
	Recalled bool

	op    *backends.Op    // in the batch of the request
	reply *backends.Reply // to op
	loan  *loan           // nil if it has asked no pool
}

// Wait is the wait after a denial until the same cost would pass, and otherwise the
// time until the full quota is back.
func (v *Verdict) Wait() time.Duration {
	if !v.Is.Allowed {
		return v.Is.RetryAfter
	}
	return v.Is.Reset
}

// Left is the number of hits that still fit. It is 0 for a denial, also of a request that cost more than
// remains.
func (v *Verdict) Left() int64 {
	if !v.Is.Allowed {
		return 0
	}
	return v.Is.Remaining
}

// Name is the name of the limit, else the path of its rule in the domain. It is
// [descriptors.Printable].
func (v *Verdict) Name(domain string) string {
	if v.Limit.Name != "" {
		return descriptors.Printable(v.Limit.Name)
	}
	return v.Path(domain)
}

// Shared says how values are in the names of callers whom the limit of v counts; see
// [descriptors.Rule.Shared].
func (v *Verdict) Shared() []descriptors.Naming {
	if v.Rule == nil || v.Override {
		return nil
	}
	return v.Rule.Shared
}

// Path is the path of the rule whose limit v is of, a request to the domain.
func (v *Verdict) Path(domain string) string {
	if v.Override {
		return OverridePath(domain)
	}
	return v.Rule.Path
}

// Plan is the plan that the limit of v is from; "" without one.
func (v *Verdict) Plan() string {
	if v.Rule == nil || v.Override {
		return ""
	}
	return v.Rule.Plan
}

// Borrowed reports whether the hits are charged to the pool of v's limit.
func (v *Verdict) Borrowed() bool { return v.Pool != nil && v.Pool.Is.Allowed }

// Counted names decisions that the store made, in place of a policy.
const Counted = "counted"

// DecidedBy is Counted, or the name of the policy that decided. It has no meaning
// unless Decided.
func (v *Verdict) DecidedBy() string { return cmp.Or(v.ByPolicy(), Counted) }

// ByPolicy is the name of the policy that decided in place of the store, else "".
func (v *Verdict) ByPolicy() string {
	if v.Counted {
		return ""
	}
	return v.Policy().String()
}

// Policy is the failure policy of the limit; of a pool, that of the limit that asked it.
func (v *Verdict) Policy() descriptors.Policy {
	if v.asker != nil {
		return v.asker.OnError
	}
	return v.Limit.OnError
}

// Remembered is a descriptor of requests that an observer remembers.
type Remembered struct {
	Domain     string              `json:"domain"`
	Entries    []descriptors.Entry `json:"entries"`
	Rule       string              `json:"rule"`                 // path; "" if the limit came with the request
	Cut        bool                `json:"-"`                    // bytes of Domain or Entries were left out
	LastDenial time.Time           `json:"last_denial,omitzero"` // zero if it is not known
	Denied     int64               `json:"denied"`               // requests in the last minute
}
