package operate

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// ruleCells finds the cells of all values of a rule among the keys of the store.
type ruleCells struct {
	*Operator
	plan     *service.Plan
	rule     *descriptors.Rule
	prefixes []string // of the keys of the cells, and of keys of other rules
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
	case o.cfg.Values != nil:
		return nil, service.Errorf(codes.Unimplemented, "the keys of the store have hashes in place of values (CACHE_KEY_HASH), which do not tell the rule: name one descriptor at a time")
	}
	found := &ruleCells{Operator: o, plan: o.Plan(d), rule: r}
	for _, v := range r.Variants() {
		for _, c := range found.cells(nil, v, o.cfg.Store.Now()) {
			if c.shared {
				return nil, service.Errorf(codes.Unimplemented, "the keys of the store are those of envoyproxy/ratelimit (CACHE_KEY_FORMAT=ratelimit), which do not tell the rule for certain: name one descriptor at a time")
			}
			prefix := o.cfg.KeyPrefix
			if c.id.OneSlot {
				prefix += "{"
			}
			prefix = string(descriptors.AppendID([]byte(prefix), d.Name, nil, nil)) + "|"
			if !slices.Contains(found.prefixes, prefix) {
				found.prefixes = append(found.prefixes, prefix)
			}
		}
	}
	return found, nil
}

// cells are those of a caller with the limits of a variant of the rule, without those of pools.
func (f *ruleCells) cells(entries []descriptors.Entry, variant *descriptors.Rule, now int64) []*cell {
	t := service.Target{Descriptor: &service.Descriptor{Entries: entries}, Rule: variant}
	f.plan.Raise(&t)
	return slices.DeleteFunc(f.cellsOf(f.plan, &t, now), func(c *cell) bool { return c.of != nil && c == c.of.pool })
}

// ruleAt finds the one rule of the domain, or with "" of all domains, with that path.
func ruleAt(tree *descriptors.Tree, name, path string) (domain *descriptors.Domain, rule *descriptors.Rule, err error) {
	if tree == nil {
		return nil, nil, service.ErrNoRules
	}
	tree.Each(func(d *descriptors.Domain, r *descriptors.Rule) {
		switch {
		case name != "" && d.Name != name || r.Path != path:
		case rule == nil:
			domain, rule = d, r
		case err == nil:
			err = service.Errorf(codes.FailedPrecondition, "two rules are named %s, at %v and at %v: name one descriptor at a time", path, rule.Pos, r.Pos)
		}
	})
	switch {
	case rule != nil:
	case name == "":
		err = service.Errorf(codes.NotFound, "no rule %s is in force", path)
	default:
		err = service.Errorf(codes.NotFound, "the domain %s has no rule %s", name, path)
	}
	return domain, rule, err
}

// among returns the cells of the rule among those at some keys, as the rule plans them
// now. A cell whose window is over is left out, and one whose key the store has
// shortened because it is long.
func (f *ruleCells) among(keys []string) (found []*cell) {
	now := f.cfg.Store.Now()
	for _, key := range keys {
		entries, variant := f.plan.Domain.Caller(f.rule, strings.TrimPrefix(key, f.cfg.KeyPrefix))
		if variant == nil {
			continue
		}
		for _, c := range f.cells(entries, variant, now) {
			if !c.Alike(c.op.Key, key) {
				continue
			}
			if c.op.Kind == backends.Meter {
				c.op.Key, c.op.Stem = key, len(key) // also the bucket of an override, or of an earlier amount
			}
			for i, e := range entries {
				entries[i] = descriptors.Named(f.rule.Shared, i, e)
			}
			found = append(found, c)
			break
		}
	}
	return found
}
