package service

import (
	"context"
	"crypto/sha256"
	"math"
	"slices"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// planner is the part of a Service that plans depend on.
type planner struct {
	cfg    Config
	values *ValueHash // nil: keys have values in clear text
}

// plan says which limits apply to a request, and has the batch that asks the store
// about them. It lives until the store's replies are judged.
type plan struct {
	*planner
	domain  *descriptors.Domain // nil: no rules have the domain
	targets []target            // one for each descriptor of the request
	limits  []*descriptors.Limit
	batch   backends.Batch // one operation for each of limits
	now     int64          // µs since the epoch, on the store's clock
	refunds bool           // the request gives hits back
	watches bool           // some of limits are watched
	warns   bool           // some of limits have thresholds
	borrows bool           // some of limits borrow
	loans   []*loan        // for each of limits, nil if it has asked no pool; nil if none has
	call    *Call          // of the request
	work    descriptors.Work
}

// target is a descriptor of the request and the rule that it matches.
type target struct {
	*Descriptor
	hits      uint64
	rule      *descriptors.Rule   // nil if no rule matches
	overrides []descriptors.Limit // the limit that the request brought
	// The limits that are decided are plan.limits[first:end], and those that are watched
	// beside them plan.limits[end:last].
	first, end, last int
}

// all returns the override, or else the limits of the rule, also the limits that
// another rule of the request replaces.
func (t *target) all() []descriptors.Limit {
	if t.overrides != nil || t.rule == nil {
		return t.overrides
	}
	return t.rule.Limits
}

// An override belongs to the request and not to the rule whose limits it takes the
// place of, so the rule's unlimited, shadow mode and quota mode do not apply to it.

func (t *target) unlimited() bool { return t.overrides == nil && t.rule != nil && t.rule.Unlimited }
func (t *target) shadow() bool    { return t.overrides == nil && t.rule != nil && t.rule.Shadow }

// quota reports whether t is one of the descriptors that deny a request only
// together. With QUOTA_MODE every descriptor is, unless it is unlimited; without a
// limit it passes. Otherwise a descriptor is if its rule is in quota mode and has a
// limit that is not replaced.
func (p *plan) quota(t *target) bool {
	if p.cfg.QuotaMode {
		return !t.unlimited()
	}
	return t.overrides == nil && t.rule != nil && t.rule.Quota && t.first < t.end
}

// match finds the rule or the override of each descriptor, and the limits that no
// other rule of the request replaces. With named, entries can also be as people are told them
// ([descriptors.Domain.MatchNamed]). Errors are those of overrides, and ctx's if it ends first.
func (p *plan) match(ctx context.Context, r *Request, named bool) error {
	p.work.Ctx = ctx
	p.targets = resized(p.targets, len(r.Descriptors))
	for i := range p.targets {
		t := &p.targets[i]
		t.Descriptor = &r.Descriptors[i]
		t.hits = r.hits(t.Descriptor)
		p.refunds = p.refunds || t.Refund
		switch {
		case len(t.Entries) == 0:
		case named:
			t.rule = p.domain.MatchNamed(t.Entries)
		default:
			t.rule = p.domain.MatchWithin(&p.work, t.Entries)
			if p.work.Ended() {
				return ctx.Err()
			}
		}
		if o := t.Limit; o != nil {
			l, err := p.domain.Override(t.rule, o.RequestsPerUnit, o.Unit, o.Multiplier)
			if err != nil {
				return invalid("descriptors[%d].limit: %v", i, err)
			}
			t.overrides = []descriptors.Limit{l}
		}
	}
	for i := range p.targets {
		t := &p.targets[i]
		t.first = len(p.limits)
		limits, tried := t.all(), false
		for j := range limits {
			l := &limits[j]
			tried = tried || l.Tried()
			if t.overrides != nil || !p.watched(t, l) && p.replacer(l.Name) == nil {
				p.limits = append(p.limits, l)
				p.warns = p.warns || l.Thresholds != nil
			}
		}
		t.end = len(p.limits)
		for j := range limits {
			if l := &limits[j]; tried && p.watched(t, l) && p.replacer(l.Name) == nil {
				p.limits = append(p.limits, l)
				p.warns = p.warns || l.Thresholds != nil
			}
		}
		t.last = len(p.limits)
		p.watches = p.watches || t.end < t.last
	}
	return nil
}

// watched reports whether l, a limit of t's rule, is only watched for t.
func (p *plan) watched(t *target, l *descriptors.Limit) bool {
	if !l.Tried() {
		return false
	}
	var room [160]byte
	return !l.EnforcedFor(descriptors.AppendID(room[:0], p.domain.Name, t.Entries, t.rule.Shared))
}

// replacer is the rule of the request that replaces the limit of that name, or nil.
// Replacing is not transitive: replaced limits, unlimited ones and those of a rule in
// shadow mode still replace others. An override and a limit that is watched replace none.
func (p *plan) replacer(name string) *descriptors.Rule {
	if name == "" {
		return nil
	}
	for i := range p.targets {
		t := &p.targets[i]
		if t.overrides != nil || t.rule == nil {
			continue
		}
		if slices.Contains(t.rule.Replaces, name) {
			return t.rule
		}
		for j := range t.rule.Limits {
			if l := &t.rule.Limits[j]; slices.Contains(l.Replaces, name) && !p.watched(t, l) {
				return t.rule
			}
		}
	}
	return nil
}

// fill makes the batch: one operation for each limit. The limits of one descriptor
// are a group, but for those that are watched: the store charges all of them or none.
func (p *plan) fill(ctx context.Context) {
	// With ChargeDenying a fixed window counts the hits that it denies itself, so
	// AdmittedOnly is for ChargeAdmitted alone.
	p.batch.AllOrNothing = p.domain.Charge != descriptors.ChargeAlways
	admittedOnly := p.domain.Charge == descriptors.ChargeAdmitted
	p.batch.Ops = resized(p.batch.Ops, len(p.limits))
	p.batch.Replies = resized(p.batch.Replies, len(p.limits))

	p.now = p.cfg.Store.Now()
	quota := p.quotaRole()
	var group uint8 // 1 or 2, so that groups that are neighbours differ
	reserve := 0
	var room [160]byte
	for i := range p.targets {
		t := &p.targets[i]
		if t.first == t.last {
			continue
		}
		id := p.identity(room[:0], t)
		charge := algorithms.Charge{Now: p.now, Cost: t.hits, Refund: t.Refund, AdmittedOnly: admittedOnly}
		if p.call != nil {
			p.call.charge(&charge, p.cfg.MaxHold)
		}
		role := backends.Firm
		switch {
		case p.cfg.ShadowMode || t.shadow():
			role = backends.Lenient
		case p.quota(t):
			role = quota
		}
		several := t.end-t.first > 1
		if several {
			group = group%2 + 1
		}
		for j := t.first; j < t.last; j++ {
			op, l := &p.batch.Ops[j], p.limits[j]
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
			l.Plan(op, ofLimit(id, l), charge)
			op.Role, op.IfUndecided = role, ifUndecided(l, charge.Refund, p.cfg.Local)
			if op.Identified() {
				reserve++
			}
			if several && j < t.end {
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
func (p *plan) holdApart() {
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
func (p *plan) apply(ctx context.Context) {
	if !p.watches {
		_ = p.cfg.Store.Apply(ctx, &p.batch)
		return
	}
	var enforced, watched backends.Part
	enforced.AllOrNothing = p.batch.AllOrNothing
	for i := range p.targets {
		t := &p.targets[i]
		for j := t.first; j < t.last; j++ {
			if j < t.end {
				enforced.Add(&p.batch, j)
			} else {
				watched.Add(&p.batch, j)
			}
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

// quotaRole is the role of the operations in quota mode: Lenient if a descriptor
// in quota mode is in shadow mode as well, so that it always passes and together
// they cannot deny. (With QUOTA_MODE a descriptor without a limit always passes,
// too. It makes no difference: then every operation is in quota mode, and if all
// of them refuse, none is charged in either role.)
func (p *plan) quotaRole() backends.Role {
	for i := range p.targets {
		if t := &p.targets[i]; t.shadow() && p.quota(t) {
			return backends.Lenient
		}
	}
	return backends.Quota
}

// identity returns the part of the key that tells apart the callers whom the
// limits of t count. It writes to room if that is large enough.
//
// OneSlot depends on the rule alone and not on the limits that are decided, so
// that an override and a limit beside a replaced one keep their counters. Limits in
// shadow mode make no difference, and have what ofLimit returns.
func (p *plan) identity(room []byte, t *target) algorithms.Identity {
	id := algorithms.Identity{Prefix: p.cfg.KeyPrefix, OneSlot: p.oneSlot(t.rule), Longest: p.cfg.MaxHold.Microseconds()}
	if p.cfg.RatelimitKeys && inRatelimit(t.all()) {
		id.ByStart = true
		id.ID = descriptors.AppendRatelimitID(room, p.domain.Name, t.Entries, t.shared())
	} else {
		id.ID = p.appendID(room, t)
	}
	return id
}

// shared says how values are in the keys of t; see [descriptors.Rule].
func (t *target) shared() []descriptors.Naming {
	switch {
	case t.overrides == nil:
		return t.rule.Shared
	case t.rule != nil:
		return t.rule.Brought()
	}
	return nil
}

// appendID appends the name of the callers whom the limits of t count, unless their keys are
// those of envoyproxy/ratelimit.
func (p *plan) appendID(room []byte, t *target) []byte {
	if p.values != nil {
		return p.values.appendID(room, p.domain.Name, t.Entries, t.shared())
	}
	return descriptors.AppendID(room, p.domain.Name, t.Entries, t.shared())
}

// ofLimit is the identity that l counts, among limits that count id. A limit in shadow mode
// is charged by itself, so it shares neither a cell of envoyproxy/ratelimit nor, unless it can
// have reservations beside its cells, a slot.
func ofLimit(id algorithms.Identity, l *descriptors.Limit) algorithms.Identity {
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
