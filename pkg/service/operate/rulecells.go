package operate

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// ruleCells finds the cells of all values of a rule among the keys of the store.
type ruleCells struct {
	*Operator
	domain   *descriptors.Domain
	rule     *descriptors.Rule
	kinds    []kind   // of all variants
	prefixes []string // of the keys of the cells, and of keys of other rules
}

// kind is the cells of one limit of a rule, or those of what its keys have borrowed.
type kind struct {
	*descriptors.Limit
	borrowed string // ends the names of callers in the keys of what they have borrowed, else ""
}

// ofRule returns the cells of a rule in force. Its errors are those of
// [Operator.ResetMatching].
func (o *Operator) ofRule(domain, path string) (*ruleCells, error) {
	d, r, err := ruleAt(o.Tree(), domain, path)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Unlimited && r.Table == nil:
		return nil, service.Errorf(codes.FailedPrecondition, "the rule %s is unlimited and has no cells", path)
	case len(o.cfg.KeySecret) > 0:
		return nil, service.Errorf(codes.FailedPrecondition, "the keys of the store have hashes in place of values (CACHE_KEY_HASH), which do not tell the rule: reset one descriptor at a time")
	case o.cfg.RatelimitKeys && slices.ContainsFunc(r.Variants(), func(v *descriptors.Rule) bool { return service.InRatelimit(v.Limits) }):
		return nil, service.Errorf(codes.FailedPrecondition, "the keys of the store are those of envoyproxy/ratelimit (CACHE_KEY_FORMAT=ratelimit), which do not tell the rule for certain: reset one descriptor at a time")
	}
	c := &ruleCells{Operator: o, domain: d, rule: r}
	for _, v := range r.Variants() {
		c.kinds = append(c.kinds, kindsOf(v)...)
	}
	for _, k := range c.kinds {
		prefix := o.cfg.KeyPrefix
		if c.identity("", k).OneSlot {
			prefix += "{"
		}
		prefix = string(descriptors.AppendID([]byte(prefix), d.Name, nil, nil)) + "|"
		if !slices.Contains(c.prefixes, prefix) {
			c.prefixes = append(c.prefixes, prefix)
		}
	}
	return c, nil
}

// kindsOf are the kinds of the limits of r.
func kindsOf(r *descriptors.Rule) (kinds []kind) {
	for i := range r.Limits {
		l := &r.Limits[i]
		kinds = append(kinds, kind{Limit: l})
		if b := l.Borrow; b != nil {
			kinds = append(kinds, kind{&b.Cell, string(b.AppendID(nil))})
		}
	}
	return kinds
}

// identity is the identity of the caller with that name in the keys of k.
func (c *ruleCells) identity(id string, k kind) algorithms.Identity {
	if k.borrowed != "" {
		return algorithms.Identity{Prefix: c.cfg.KeyPrefix, ID: []byte(id + k.borrowed)}
	}
	return service.OfLimit(algorithms.Identity{Prefix: c.cfg.KeyPrefix, ID: []byte(id), OneSlot: c.OneSlot(c.rule), Longest: c.cfg.MaxHold.Microseconds()}, k.Limit)
}

// ruleAt finds the one rule of the domain with that path.
func ruleAt(tree *descriptors.Tree, name, path string) (domain *descriptors.Domain, rule *descriptors.Rule, err error) {
	if tree == nil {
		return nil, nil, service.ErrNoRules
	}
	tree.Each(func(d *descriptors.Domain, r *descriptors.Rule) {
		switch {
		case d.Name != name || r.Path != path:
		case rule == nil:
			domain, rule = d, r
		case err == nil:
			err = service.Errorf(codes.FailedPrecondition, "two rules are named %s, at %v and at %v: reset one descriptor at a time", path, rule.Pos, r.Pos)
		}
	})
	if rule == nil {
		err = service.Errorf(codes.NotFound, "the domain %s has no rule %s", name, path)
	}
	return domain, rule, err
}

// among returns the cells of the rule among those at some keys, as the rule plans them
// now. A cell whose window is over is left out, and one whose key the store has
// shortened because it is long.
func (c *ruleCells) among(keys []string) (found []*cell) {
	now := c.cfg.Store.Now()
	for _, key := range keys {
		kinds := c.kinds
		if c.rule.Table != nil {
			kinds = kindsOf(c.domain.VariantOf(c.rule, strings.TrimPrefix(key, c.cfg.KeyPrefix)))
		}
		for _, k := range kinds {
			id, ok := k.IDOf(key, c.cfg.KeyPrefix, c.identity("", k).OneSlot, now)
			if !ok || !strings.HasSuffix(id, k.borrowed) {
				continue
			}
			id = strings.TrimSuffix(id, k.borrowed)
			if identifies(id, c.domain, c.rule) {
				of := &cell{Limit: k.Limit}
				k.Plan(&of.op, c.identity(id, k), algorithms.Charge{Now: now})
				if of.op.Kind == backends.Meter {
					of.op.Key, of.op.Stem = key, len(key) // also the bucket of an override, or of an earlier amount
				}
				found = append(found, of)
			}
			break
		}
	}
	return found
}

// identifies reports whether id, as descriptors.AppendID made it, is that of a
// descriptor which r limits.
func identifies(id string, domain *descriptors.Domain, r *descriptors.Rule) bool {
	name, entries, ok := descriptors.ParseID(id)
	if !ok || name != domain.Name || r.Shared != nil && len(entries) != len(r.Shared) {
		return false
	}
	return string(descriptors.AppendID(nil, name, entries, r.Shared)) == id && r.Identifies(domain, entries)
}
