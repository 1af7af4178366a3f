package match

import (
	"slices"
	"strings"
)

// Pattern is a string with '*', each of which stands for any bytes or none.
type Pattern struct {
	prefix, suffix string   // before the first '*', after the last
	middle         []string // between them, without empty parts
	exact          bool     // no '*': prefix is the whole string
}

// IsPattern reports whether a text has a wildcard.
func IsPattern(s string) bool { return strings.IndexByte(s, '*') >= 0 }

// NewPattern reads a pattern; without a wildcard it takes the text alone.
func NewPattern(s string) Pattern {
	if !IsPattern(s) {
		return Pattern{prefix: s, exact: true}
	}
	parts := strings.Split(s, "*")
	last := len(parts) - 1
	middle := slices.DeleteFunc(parts[1:last:last], func(p string) bool { return p == "" })
	return Pattern{prefix: parts[0], suffix: parts[last], middle: slices.Clip(middle)}
}

// Takes reports whether s is one of the texts for which p stands.
func (p *Pattern) Takes(s string) bool {
	if p.exact {
		return s == p.prefix
	}
	return len(s) >= len(p.prefix)+len(p.suffix) &&
		strings.HasPrefix(s, p.prefix) && strings.HasSuffix(s, p.suffix) &&
		p.matchMiddle(s[len(p.prefix):len(s)-len(p.suffix)])
}

// matchMiddle looks for each part between the first '*' and the last at its
// first occurrence after the part before.
func (p *Pattern) matchMiddle(s string) bool {
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
	p := NewPattern(pattern)
	return p.Takes(text)
}

// Also reports whether a descriptor with a pattern takes another text, beside that of the pattern.
type Also func(w *Work, text string) bool

// glob is a descriptor with a pattern.
type glob struct {
	Pattern
	order int
	also  Also // another text that it takes, nil for any
}

// Globs finds the first glob that matches a string. Globs with the same prefix
// and suffix form a group that is found by hashing. So the cost grows with the
// number of different lengths of prefixes and suffixes, not with the number of
// globs.
type Globs struct {
	shapes []shape // by first
	groups map[affixes][]glob
}

type affixes struct{ prefix, suffix string }

// shape is the length of the prefix and of the suffix of at least one group.
type shape struct {
	prefix, suffix int
	first          int // the smallest order of a glob of this shape
}

// Add appends a descriptor of that order, which comes after the others. Unless also is nil, the
// descriptor takes only the other texts that it returns true for.
func (gs *Globs) Add(pattern string, order int, also Also) {
	if gs.groups == nil {
		gs.groups = make(map[affixes][]glob)
	}
	p := NewPattern(pattern)
	a := affixes{p.prefix, p.suffix}
	gs.groups[a] = append(gs.groups[a], glob{p, order, also})
	known := func(s shape) bool { return s.prefix == len(a.prefix) && s.suffix == len(a.suffix) }
	if !slices.ContainsFunc(gs.shapes, known) {
		gs.shapes = append(gs.shapes, shape{len(a.prefix), len(a.suffix), order})
	}
}

// Find returns the order of the first descriptor whose pattern takes s, and which takes the
// other text, or before if none does that comes before it. Once w has ended that means nothing.
func (gs *Globs) Find(w *Work, s, other string, before int) (first int) {
	first = before
	for _, sh := range gs.shapes {
		if first < sh.first {
			break
		}
		if len(s) < sh.prefix+sh.suffix {
			continue
		}
		end := len(s) - sh.suffix
		group := gs.groups[affixes{s[:sh.prefix], s[end:]}]
		for i := range group {
			g := &group[i]
			if first <= g.order {
				break
			}
			if g.matchMiddle(s[sh.prefix:end]) && (g.also == nil || g.also(w, other)) {
				first = g.order
				break
			}
		}
	}
	return first
}
