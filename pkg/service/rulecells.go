package service

import (
	"errors"
	"fmt"
	"strings"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// RuleCells tells how to find the cells of a rule of the rules in force, by the rule's
// path, among the keys of the store (backends.Scanner). The keys of the cells begin
// with prefix. reset returns the operation that resets the cell at a key. ok is false
// if the cell belongs to another rule, if its window is over, and if the store has
// shortened the key because it is long. reset knows the rules that were in force when
// RuleCells was called, and is not safe for concurrent use.
//
// The error says why the cells cannot be found: there is no such rule or it has no
// limit, or the keys do not tell their entries (Config.KeySecret, RatelimitKeys).
func (s *Service) RuleCells(rule string) (prefix string, reset func(key string) (op backends.Op, ok bool), err error) {
	domain, r, err := s.ruleAt(rule)
	if err != nil {
		return "", nil, err
	}
	switch {
	case r.Unlimited:
		return "", nil, fmt.Errorf("the rule %s is unlimited and has no cells", rule)
	case s.values != nil:
		return "", nil, errors.New("the keys of the store have hashes in place of values (CACHE_KEY_HASH), which do not tell the rule: reset one descriptor at a time")
	case s.cfg.RatelimitKeys && inRatelimit(r.Limits):
		return "", nil, errors.New("the keys of the store are those of envoyproxy/ratelimit (CACHE_KEY_FORMAT=ratelimit), which do not tell the rule for certain: reset one descriptor at a time")
	}
	oneSlot := len(r.Limits) > 1
	prefix = s.cfg.KeyPrefix
	if oneSlot || r.Limits[0].Paired() {
		prefix += "{"
	}
	prefix = string(descriptors.AppendID([]byte(prefix), domain.Name, nil, nil)) + "|"
	return prefix, func(key string) (backends.Op, bool) {
		op := backends.Op{Key: key, Now: s.cfg.Store.Now()}
		for i := range r.Limits {
			if id, ok := r.Limits[i].IDOf(key, s.cfg.KeyPrefix, oneSlot, op.Now); ok {
				op.PerSecond = r.Limits[i].PerSecond()
				return op.Reset(), identifies(id, domain, r)
			}
		}
		return backends.Op{}, false
	}, nil
}

// ruleAt finds the one rule with that path.
func (s *Service) ruleAt(path string) (domain *descriptors.Domain, rule *descriptors.Rule, err error) {
	tree := s.tree.Load()
	if tree == nil {
		return nil, nil, errors.New("no rate limit configuration loaded")
	}
	tree.Each(func(d *descriptors.Domain, r *descriptors.Rule) {
		switch {
		case r.Path != path:
		case rule == nil:
			domain, rule = d, r
		case err == nil:
			err = fmt.Errorf("two rules are named %s, at %v and at %v: reset one descriptor at a time", path, rule.Pos, r.Pos)
		}
	})
	if rule == nil {
		err = fmt.Errorf("there is no rule %s", path)
	}
	return domain, rule, err
}

// identifies reports whether id, as descriptors.AppendID made it, is that of a
// descriptor which r limits.
func identifies(id string, domain *descriptors.Domain, r *descriptors.Rule) bool {
	name, entries, ok := descriptors.ParseID(id)
	if !ok || name != domain.Name || r.Shared != nil && len(entries) != len(r.Shared) {
		return false
	}
	if string(descriptors.AppendID(nil, name, entries, r.Shared)) != id {
		return false
	}
	for i, pattern := range r.Shared {
		switch {
		case pattern.Key != "":
			entries[i] = pattern
		case strings.Contains(pattern.Value, "*"):
			entries[i].Value = pattern.Value
		}
	}
	return domain.Match(entries) == r // a pattern matches the descriptor that is spelt so
}
