package service

import (
	"context"
	"crypto/sha256"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// planner is the part of a Service that plans depend on.
type planner struct {
	cfg    Config
	grants atomic.Pointer[descriptors.Grants]
}

// Plan says which limits apply to a request, and has the batch that asks the store
// about them. It lives until the store's replies are judged.
type Plan struct {
	*planner
	Domain  *descriptors.Domain // nil: no rules have the domain
	Targets []Target            // one for each descriptor of the request
	// Verdicts has the limits of each target in turn, of those that no other rule of the request
	// replaces; the limits of one that are watched come last.
	Verdicts []Verdict
	batch    backends.Batch // one operation for each of Verdicts
	now      int64          // µs since the epoch, on the store's clock
	refunds  bool           // the request gives hits back
	watches  bool           // some of Verdicts are watched
	warns    bool           // some have thresholds
	borrows  bool           // some borrow
	call     *Call          // of the request
	work     descriptors.Work
}

// Target is a descriptor of the request and the rule that it matches.
type Target struct {
	*Descriptor
	Hits      uint64
	Rule      *descriptors.Rule   // nil if no rule matches
	overrides []descriptors.Limit // the limit that the request brought
	// The limits of the target are Plan.Verdicts[first:last], of which [end:last] are watched.
	first, end, last int
}

// All returns the override, or else the limits of the rule, also the limits that
// another rule of the request replaces.
func (t *Target) All() []descriptors.Limit {
	if t.overrides != nil || t.Rule == nil {
		return t.overrides
	}
	return t.Rule.Limits
}

// An override belongs to the request and not to the rule whose limits it takes the
// place of, so the rule's unlimited, shadow mode and quota mode do not apply to it.

// Unlimited reports whether every hit of t passes.
func (t *Target) Unlimited() bool { return t.overrides == nil && t.Rule != nil && t.Rule.Unlimited }

// Shadow reports whether the rule of t is in shadow mode.
func (t *Target) Shadow() bool { return t.overrides == nil && t.Rule != nil && t.Rule.Shadow }

// Quota reports whether t is one of the descriptors that deny a request only
// together. With QUOTA_MODE every descriptor is, unless it is unlimited; without a
// limit it passes. Otherwise a descriptor is if its rule is in quota mode and has a
// limit that is not replaced.
func (p *Plan) Quota(t *Target) bool {
	if p.cfg.QuotaMode {
		return !t.Unlimited()
	}
	return t.overrides == nil && t.Rule != nil && t.Rule.Quota && t.first < t.end
}

// Match finds the rule or the override of each descriptor, and the limits that no
// other rule of the request replaces. With named, entries can also be as people are told them
// ([descriptors.Domain.MatchNamed]). Errors are those of overrides, and ctx's if it ends first.
func (p *Plan) Match(ctx context.Context, r *Request, named bool) error {
	p.work.Ctx = ctx
	p.Targets = resized(p.Targets, len(r.Descriptors))
	for i := range p.Targets {
		t := &p.Targets[i]
		t.Descriptor = &r.Descriptors[i]
		t.Hits = r.Cost(t.Descriptor)
		p.refunds = p.refunds || t.Refund
		switch {
		case len(t.Entries) == 0:
		case named:
			t.Rule = p.Domain.MatchNamed(t.Entries)
		default:
			t.Rule = p.Domain.MatchWithin(&p.work, t.Entries)
			if p.work.Ended() {
				return ctx.Err()
			}
		}
		if o := t.Limit; o != nil {
			l, err := p.Domain.Override(t.Rule, o.RequestsPerUnit, o.Unit, o.Multiplier)
			if err != nil {
				return Wrong("descriptors[%d].limit: %v", i, err)
			}
			t.overrides = []descriptors.Limit{l}
		} else {
			p.Raise(t)
		}
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		t.first = len(p.Verdicts)
		p.check(t, false)
		t.end = len(p.Verdicts)
		p.check(t, true)
		t.last = len(p.Verdicts)
		p.watches = p.watches || t.end < t.last
	}
	return nil
}

// Raise gives t's rule the limits that grants to its caller raise.
func (p *Plan) Raise(t *Target) {
	if by := p.grants.Load(); by != nil && t.Rule != nil {
		var room [160]byte
		t.Rule = by.Rule(p.appendID(room[:0], t), t.Rule, p.cfg.Store.Now())
	}
}

// check has t checked against its limits that are watched, or against the others.
func (p *Plan) check(t *Target, watched bool) {
	limits := t.All()
	for j := range limits {
		l := &limits[j]
		if p.Watched(t, l) != watched || t.overrides == nil && p.Replacer(l.Name) != nil {
			continue
		}
		p.Verdicts = append(p.Verdicts, Verdict{})
		v := &p.Verdicts[len(p.Verdicts)-1]
		v.Rule, v.Limit, v.Override, v.Watched, v.Shadow = t.Rule, l, t.overrides != nil, watched, watched || t.Shadow()
		v.Entries, v.Hits = t.Entries, min(t.Hits, uint64(backends.MaxCost))
		p.warns = p.warns || l.Thresholds != nil
	}
}

// checks are the limits of t.
func (p *Plan) checks(t *Target) []Verdict { return p.Verdicts[t.first:t.last] }

// Watched reports whether l, a limit of t's rule, is only watched for t.
func (p *Plan) Watched(t *Target, l *descriptors.Limit) bool {
	if !l.Tried() {
		return false
	}
	var room [160]byte
	return !l.EnforcedFor(descriptors.AppendID(room[:0], p.Domain.Name, t.Entries, t.Rule.Shared))
}

// Replacer is the rule of the request that replaces the limit of that name, or nil.
// Replacing is not transitive: replaced limits, unlimited ones and those of a rule in
// shadow mode still replace others. An override and a limit that is watched replace none.
func (p *Plan) Replacer(name string) *descriptors.Rule {
	if name == "" {
		return nil
	}
	for i := range p.Targets {
		t := &p.Targets[i]
		if t.overrides != nil || t.Rule == nil {
			continue
		}
		if slices.Contains(t.Rule.Replaces, name) {
			return t.Rule
		}
		for j := range t.Rule.Limits {
			if l := &t.Rule.Limits[j]; slices.Contains(l.Replaces, name) && !p.Watched(t, l) {
				return t.Rule
			}
		}
	}
	return nil
}

// fill makes the batch: one operation for each limit. The limits of one descriptor
// are a group, but for those that are watched: the store charges all of them or none.
func (p *Plan) fill(ctx context.Context) {
	// With ChargeDenying a fixed window counts the hits that it denies itself, so
	// AdmittedOnly is for ChargeAdmitted alone.
	p.batch.AllOrNothing = p.Domain.Charge != descriptors.ChargeAlways
	admittedOnly := p.Domain.Charge == descriptors.ChargeAdmitted
	p.batch.Ops = resized(p.batch.Ops, len(p.Verdicts))
	p.batch.Replies = resized(p.batch.Replies, len(p.Verdicts))

	p.now = p.cfg.Store.Now()
	quota := p.quotaRole()
	var group uint8 // 1 or 2, so that groups that are neighbours differ
	reserve := 0
	var room [160]byte
	for i := range p.Targets {
		t := &p.Targets[i]
		if t.first == t.last {
			continue
		}
		id := p.Identity(room[:0], t)
		charge := algorithms.Charge{Now: p.now, Cost: t.Hits, Refund: t.Refund, AdmittedOnly: admittedOnly}
		if p.call != nil {
			p.call.charge(&charge, p.cfg.MaxHold)
		}
		role := p.role(t, quota)
		several := t.end-t.first > 1
		if several {
			group = group%2 + 1
		}
		for j := t.first; j < t.last; j++ {
			v, op := &p.Verdicts[j], &p.batch.Ops[j]
			l := v.Limit
			if l.MaxDelay > 0 {
				charge.Patience = patience(ctx)
			}
			if p.call == nil {
				charge.Reservation = ""
				if l.Reserve.TTL > 0 {
					charge.Reservation = reservation(t.Entries)
				}
			}
			charge.AdmittedOnly = admittedOnly
			if l.Borrow != nil { // denied hits are the pool's
				charge.AdmittedOnly, p.borrows = true, p.call == nil
			}
			l.Plan(op, OfLimit(id, l), charge)
			v.op, v.reply, v.Key = op, &p.batch.Replies[j], op.Key
			op.Role, op.IfUndecided = role, p.cfg.IfUndecided(l, charge.Refund)
			if op.Identified() {
				reserve++
			}
			if several && !v.Watched {
				op.Group = group
			}
		}
	}
	if reserve > 1 {
		p.holdApart()
	}
}

// holdApart gives operations that have one counter and one reservation different ones: each
// descriptor makes and settles its own.
func (p *Plan) holdApart() {
	type hold struct{ key, id string }
	last := make(map[hold]string, len(p.batch.Ops)) // the ID of the last operation
	for i := range p.batch.Ops {
		if op := &p.batch.Ops[i]; op.Identified() {
			of := hold{op.Hold.Key, op.Hold.ID}
			if before, ok := last[of]; ok {
				op.Hold.ID = digest(before)
			}
			last[of] = op.Hold.ID
		}
	}
}

// apply has the store decide the batch. Limits that are watched are a batch of their own,
// which is under way at the same time: what becomes of one batch does not touch the other.
// The errors are those of the replies.
func (p *Plan) apply(ctx context.Context) {
	if !p.watches {
		_ = p.cfg.Store.Apply(ctx, &p.batch)
		return
	}
	var enforced, watched backends.Part
	enforced.AllOrNothing = p.batch.AllOrNothing
	for j := range p.Verdicts {
		if p.Verdicts[j].Watched {
			watched.Add(&p.batch, j)
		} else {
			enforced.Add(&p.batch, j)
		}
	}
	var others sync.WaitGroup
	if len(enforced.Ops) > 0 {
		others.Go(func() { _ = p.cfg.Store.Apply(ctx, &watched.Batch) })
		_ = p.cfg.Store.Apply(ctx, &enforced.Batch)
		others.Wait()
	} else {
		_ = p.cfg.Store.Apply(ctx, &watched.Batch)
	}
	p.batch.Refused = enforced.Refused
	enforced.Answer(&p.batch)
	watched.Answer(&p.batch)
}

// role is the role of the operations of t; quota is that of quota mode.
func (p *Plan) role(t *Target, quota backends.Role) backends.Role {
	switch {
	case p.cfg.ShadowMode || t.Shadow():
		return backends.Lenient
	case p.Quota(t):
		return quota
	}
	return backends.Firm
}

// quotaRole is the role of the operations in quota mode: Lenient if a descriptor
// in quota mode is in shadow mode as well, so that it always passes and together
// they cannot deny. (With QUOTA_MODE a descriptor without a limit always passes,
// too. It makes no difference: then every operation is in quota mode, and if all
// of them refuse, none is charged in either role.)
func (p *Plan) quotaRole() backends.Role {
	for i := range p.Targets {
		if t := &p.Targets[i]; t.Shadow() && p.Quota(t) {
			return backends.Lenient
		}
	}
	return backends.Quota
}

// Identity returns the part of the key that tells apart the callers whom the
// limits of t count. It writes to room if that is large enough.
//
// OneSlot depends on the rule alone and not on the limits that are decided, so
// that an override and a limit beside a replaced one keep their counters. Limits in
// shadow mode make no difference, and have what OfLimit returns.
func (p *Plan) Identity(room []byte, t *Target) algorithms.Identity {
	oneSlot := p.cfg.MaxHold > 0 || t.Rule != nil && t.Rule.OneSlot()
	id := algorithms.Identity{Prefix: p.cfg.KeyPrefix, OneSlot: oneSlot, Longest: p.cfg.MaxHold.Microseconds()}
	if p.cfg.RatelimitKeys && inRatelimit(t.All()) {
		id.ByStart = true
		id.ID = descriptors.AppendRatelimitID(room, p.Domain.Name, t.Entries, t.shared())
	} else {
		id.ID = p.appendID(room, t)
	}
	return id
}

// shared says how values are in the keys of t; see [descriptors.Rule].
func (t *Target) shared() []descriptors.Naming {
	switch {
	case t.overrides == nil:
		return t.Rule.Shared
	case t.Rule != nil:
		return t.Rule.Brought
	}
	return nil
}

// appendID appends the name of the callers whom the limits of t count, unless their keys are
// those of envoyproxy/ratelimit.
func (p *Plan) appendID(room []byte, t *Target) []byte {
	if p.cfg.Values != nil {
		return p.cfg.Values.appendID(room, p.Domain.Name, t.Entries, t.shared())
	}
	return descriptors.AppendID(room, p.Domain.Name, t.Entries, t.shared())
}

// Caller is the name of the callers whom the limits of t count.
func (p *Plan) Caller(t *Target) string { return string(p.appendID(nil, t)) }

// OfLimit is the identity that l counts, among limits that count id. A limit in shadow mode
// is charged by itself, so it shares neither a cell of envoyproxy/ratelimit nor, unless it can
// have reservations beside its cells, a slot.
func OfLimit(id algorithms.Identity, l *descriptors.Limit) algorithms.Identity {
	if l.Shadow {
		id.ByStart, id.OneSlot = false, id.OneSlot && (l.Reserve.TTL > 0 || id.Longest > 0)
	}
	return id
}

// inRatelimit reports whether envoyproxy/ratelimit can have such limits: one
// for a rule, in a fixed window of one unit, without reservations. Limits in shadow mode do
// not count.
func inRatelimit(limits []descriptors.Limit) bool {
	n := 0
	for i := range limits {
		l := &limits[i]
		switch {
		case l.Shadow:
		case !l.Clocked() || l.Multiplier > 1 || l.Reserve.TTL > 0:
			return false
		default:
			n++
		}
	}
	return n == 1
}

// reservation is the id of a reservation in the value of the last entry: a digest of 128 bits,
// "" without a value.
func reservation(entries []descriptors.Entry) string {
	id := entries[len(entries)-1].Value
	if id == "" {
		return ""
	}
	return digest(id)
}

// digest returns 16 bytes that stand for a text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return string(sum[:16])
}

// patience is how long a caller can wait for its turn, in µs: until a margin
// before its deadline, which leaves time for the answer to travel.
func patience(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	left := time.Until(deadline)
	return max(0, (left - backends.Margin(left)).Microseconds())
}

// resized returns n zero elements. It uses the memory of s, whose elements must
// be zero, if they have room in it.
func resized[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}
