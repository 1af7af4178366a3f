package service

import (
	"context"
	"slices"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// match finds the rule or the override of each descriptor, and makes a check of
// each limit that no other limit of the request replaces.
func (d *decision) match(domain *descriptors.Domain) error {
	for i := range d.outcomes {
		o := &d.outcomes[i]
		o.asked = &d.request.descriptors[i]
		if len(o.asked.entries) > 0 {
			o.rule = domain.Match(o.asked.entries)
		}
		if o.asked.override.given {
			l, err := o.asked.override.limit(domain, o.rule)
			if err != nil {
				return invalid("descriptors[%d].limit: %v", i, err)
			}
			o.overrides = []descriptors.Limit{l}
		}
	}
	for i := range d.outcomes {
		o := &d.outcomes[i]
		o.first = len(d.checks)
		limits := o.limits()
		for j := range limits {
			if l := &limits[j]; o.overrides != nil || d.replacer(l.Name) == nil {
				d.checks = append(d.checks, check{outcome: o, limit: l})
			}
		}
		o.end = len(d.checks)
	}
	return nil
}

// replacer is the outcome of a descriptor whose rule replaces the limit of that
// name, or nil. A limit that is itself replaced, unlimited or in shadow mode
// replaces others all the same. An override replaces none.
func (d *decision) replacer(name string) *outcome {
	if name == "" {
		return nil
	}
	for i := range d.outcomes {
		o := &d.outcomes[i]
		if o.overrides != nil || o.rule == nil {
			continue
		}
		if slices.Contains(o.rule.Replaces, name) {
			return o
		}
		for j := range o.rule.Limits {
			if slices.Contains(o.rule.Limits[j].Replaces, name) {
				return o
			}
		}
	}
	return nil
}

// plan makes the batch: one operation for each check. The limits of one
// descriptor are a group: the store charges all of them or none.
func (d *decision) plan(ctx context.Context, domain *descriptors.Domain) {
	// With ChargeDenying a fixed window counts the hits that it denies itself, so
	// AdmittedOnly is for ChargeAdmitted alone.
	d.batch.AllOrNothing = domain.Charge != descriptors.ChargeAlways
	admittedOnly := domain.Charge == descriptors.ChargeAdmitted
	d.batch.Ops = resized(d.batch.Ops, len(d.checks))
	d.batch.Replies = resized(d.batch.Replies, len(d.checks))

	now := d.service.cfg.Store.Now()
	quota := d.quotaRole()
	var group uint8 // 1 or 2, so that groups that are neighbours differ
	var room [160]byte
	for i := range d.outcomes {
		o := &d.outcomes[i]
		if o.first == o.end {
			continue
		}
		id := d.identity(room[:0], domain.Name, o)
		charge := algorithms.Charge{Now: now, Cost: o.asked.hits, Refund: o.asked.refund, AdmittedOnly: admittedOnly}
		role := backends.Firm
		switch {
		case d.service.cfg.ShadowMode || o.shadow():
			role = backends.Lenient
		case d.quota(o):
			role = quota
		}
		several := o.end-o.first > 1
		if several {
			group = group%2 + 1
		}
		for j := o.first; j < o.end; j++ {
			op := &d.batch.Ops[j]
			l := d.checks[j].limit
			if l.MaxDelay > 0 {
				charge.Patience = patience(ctx)
			}
			l.Plan(op, id, charge)
			op.Role, op.IfUndecided = role, d.service.ifUndecided(l, charge.Refund)
			if several {
				op.Group = group
			}
		}
	}
}

// identity returns the part of the key that tells apart the callers whom the
// limits of o count. It writes to room if that is large enough.
//
// OneSlot depends on the rule alone and not on the limits that are checked, so
// that an override and a limit beside a replaced one keep their counters.
func (d *decision) identity(room []byte, domain string, o *outcome) algorithms.Identity {
	id := algorithms.Identity{Prefix: d.service.cfg.KeyPrefix, OneSlot: o.rule != nil && len(o.rule.Limits) > 1}
	var shared []descriptors.Entry
	if o.overrides == nil {
		shared = o.rule.Shared
	}
	switch {
	case d.service.cfg.RatelimitKeys && inRatelimit(o.limits()):
		id.ByStart = true
		id.ID = descriptors.AppendRatelimitID(room, domain, o.asked.entries, shared)
	case d.service.values != nil:
		id.ID = d.service.values.appendID(room, domain, o.asked.entries, shared)
	default:
		id.ID = descriptors.AppendID(room, domain, o.asked.entries, shared)
	}
	return id
}

// inRatelimit reports whether envoyproxy/ratelimit can have such limits: one
// for a rule, in a fixed window of one unit.
func inRatelimit(limits []descriptors.Limit) bool {
	return len(limits) == 1 && limits[0].Clocked() && limits[0].Multiplier <= 1
}

// quota reports whether o is one of the descriptors that deny a request only
// together. With QUOTA_MODE that is every descriptor that is not unlimited, also
// one without a limit, which passes. Else it is every descriptor whose rule is
// in quota mode and has a limit that is not replaced.
func (d *decision) quota(o *outcome) bool {
	if d.service.cfg.QuotaMode {
		return !o.unlimited()
	}
	return o.overrides == nil && o.rule != nil && o.rule.Quota && o.first < o.end
}

// quotaRole is the role of the operations in quota mode: Lenient if a descriptor
// in quota mode is in shadow mode as well, so that it always passes and together
// they cannot deny. (With QUOTA_MODE a descriptor without a limit always passes,
// too. It makes no difference: then every operation is in quota mode, and if all
// of them refuse, none is charged in either role.)
func (d *decision) quotaRole() backends.Role {
	for i := range d.outcomes {
		if o := &d.outcomes[i]; o.shadow() && d.quota(o) {
			return backends.Lenient
		}
	}
	return backends.Quota
}
