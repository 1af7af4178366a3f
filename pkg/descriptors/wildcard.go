package descriptors

import (
	"slices"
	"strings"
)

// pattern is a string with '*', each of which stands for any bytes or none.
type pattern struct {
	prefix, suffix string   // before the first '*', after the last
	middle         []string // between them, without empty parts
	exact          bool     // no '*': prefix is the whole string
}

func isPattern(s string) bool { return strings.IndexByte(s, '*') >= 0 }

// HasWildcard reports whether key or value has a wildcard.
func (e Entry) HasWildcard() bool { return isPattern(e.Key) || isPattern(e.Value) }

func newPattern(s string) pattern {
	if !isPattern(s) {
		return pattern{prefix: s, exact: true}
	}
	parts := strings.Split(s, "*")
	last := len(parts) - 1
	middle := slices.DeleteFunc(parts[1:last:last], func(p string) bool { return p == "" })
	return pattern{prefix: parts[0], suffix: parts[last], middle: slices.Clip(middle)}
}

func (p *pattern) match(s string) bool {
	if p.exact {
		return s == p.prefix
	}
	return len(s) >= len(p.prefix)+len(p.suffix) &&
		strings.HasPrefix(s, p.prefix) && strings.HasSuffix(s, p.suffix) &&
		p.matchMiddle(s[len(p.prefix):len(s)-len(p.suffix)])
}

// matchMiddle looks for each part between the first '*' and the last at its
// first occurrence after the part before.
func (p *pattern) matchMiddle(s string) bool {
	for _, part := range p.middle {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}

// Matches reports whether text is one of those for which pattern stands: each '*' in it is any bytes
// or none.
func Matches(pattern, text string) bool {
	p := newPattern(pattern)
	return p.match(text)
}

// glob is a descriptor with a pattern in its key or value.
type glob struct {
	pattern
	value *pattern // of a glob with a pattern in the key; nil when any value matches, or match says
	match *Match   // of a glob with a pattern in the key; nil without one
	order int
	node  *Node
}

// globs finds the first glob that matches a string. Globs with the same prefix
// and suffix form a group that is found by hashing. So the cost grows with the
// number of different lengths of prefixes and suffixes, not with the number of
// globs.
type globs struct {
	shapes []shape // by first
	groups map[affixes][]glob
}

type affixes struct{ prefix, suffix string }

// shape is the length of the prefix and of the suffix of at least one group.
type shape struct {
	prefix, suffix int
	first          int // the smallest order of a glob of this shape
}

// addPattern takes a descriptor that comes after the others in the order of the rules.
func (s *sets) addPattern(n *Node) {
	g := glob{order: n.order, node: n, match: n.Match}
	if !isPattern(n.Key) {
		g.pattern = newPattern(n.Value)
		n.parent.setsOf(n.Key).patterns.add(g)
		return
	}
	g.pattern = newPattern(n.Key)
	if n.Value != "" {
		value := newPattern(n.Value)
		g.value = &value
	}
	s.keys.add(g)
}

// add appends g. Globs are added in the order of the rules.
func (gs *globs) add(g glob) {
	if gs.groups == nil {
		gs.groups = make(map[affixes][]glob)
	}
	a := affixes{g.prefix, g.suffix}
	gs.groups[a] = append(gs.groups[a], g)
	known := func(s shape) bool { return s.prefix == len(a.prefix) && s.suffix == len(a.suffix) }
	if !slices.ContainsFunc(gs.shapes, known) {
		gs.shapes = append(gs.shapes, shape{len(a.prefix), len(a.suffix), g.order})
	}
}

// find returns the first glob that matches s, and value where the glob has a
// pattern or a match for it. It returns best when that comes earlier.
func (gs *globs) find(s, value string, best *glob) *glob {
	for _, sh := range gs.shapes {
		if best != nil && best.order < sh.first {
			break
		}
		if len(s) < sh.prefix+sh.suffix {
			continue
		}
		end := len(s) - sh.suffix
		group := gs.groups[affixes{s[:sh.prefix], s[end:]}]
		for i := range group {
			g := &group[i]
			if best != nil && best.order < g.order {
				break
			}
			if g.matchMiddle(s[sh.prefix:end]) && (g.value == nil || g.value.match(value)) && (g.match == nil || g.match.Takes(value)) {
				best = g
				break
			}
		}
	}
	return best
}
