package descriptors

import (
	"cmp"
	"slices"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors/match"
)

// Place is a rule in which a value can stand, or a row of its table that has the value.
type Place struct {
	Domain string  `json:"domain"`
	Rule   string  `json:"rule"`
	Path   []Entry `json:"path"` // as written, from the outermost descriptor to that of the rule
	// Match is exact, wildcard, matcher, or any for a key without a value: of the entry that
	// fits best.
	Match string `json:"match"`
	File  string `json:"file"`
	Line  int    `json:"line"`
}

// Places lists at most n rules that have an entry, of any key, which takes the whole
// value: those that fit it better first, in the order of precedence, and then in the
// order of domains and positions. It looks at each rule once.
func (t *Tree) Places(value string, n int) []Place {
	type fitting struct {
		domain *Domain
		node   *Node
		entry  *Node      // the one that fits best on the way to node; nil if none does
		best   match.Rank // of entry
		at     document.Position
	}
	var found []fitting
	var below func(f fitting)
	below = func(f fitting) {
		for _, child := range f.node.below {
			next := fitting{f.domain, child, f.entry, f.best, child.Pos}
			if fits := child.fits(value); fits < f.best {
				next.entry, next.best = child, fits
			}
			row := document.Position{}
			if child.Rule != nil && child.Rule.Table != nil {
				row = child.Rule.Table.place(value)
			}
			switch {
			case row.Line > 0:
				found = append(found, fitting{f.domain, child, child, match.ByValue, row})
			case child.Rule != nil && next.entry != nil:
				found = append(found, next)
			}
			below(next)
		}
	}
	for _, d := range t.Domains() {
		below(fitting{domain: d, node: &d.root, best: match.NoRank})
	}
	slices.SortFunc(found, func(f, g fitting) int {
		return cmp.Or(cmp.Compare(f.best, g.best), cmp.Compare(f.domain.Name, g.domain.Name), f.at.Compare(g.at))
	})
	places := make([]Place, min(n, len(found)))
	for i := range places {
		f := &found[i]
		r := f.node.Rule
		how := "matcher"
		switch {
		case f.best == match.ByValue:
			how = "exact"
		case f.best == match.ByKey:
			how = "any"
		case f.entry.Match == nil:
			how = "wildcard"
		}
		path := f.node.Way()
		if f.at != f.node.Pos { // of a row
			path[r.Table.Entry].Value = value
		}
		places[i] = Place{f.domain.Name, r.Path, path, how, f.at.File, f.at.Line}
	}
	return places
}

// Apart lists the keys whose values the limits of n count apart: those of which n or a
// descriptor above it takes more than one value, unless the values share a counter as
// [Rule.Shared] says. Of addresses that are counted by network it is "network of KEY".
func (n *Node) Apart() (keys []string) {
	for a := n; a.parent != nil; a = a.parent {
		switch {
		case a.Mask != Mask{}:
			keys = append(keys, "network of "+a.Key)
		case a.Descriptor.Shared, a == n && n.Rule.Reserves():
		case a.AnyValue(), a.Match != nil, a.HasWildcard():
			keys = append(keys, a.Key)
		}
	}
	slices.Reverse(keys)
	return keys
}
