package descriptors

import (
	"cmp"
	"slices"
)

// Place is a rule in which a value can stand.
type Place struct {
	Domain string  `json:"domain"`
	Rule   string  `json:"rule"`
	Path   []Entry `json:"path"` // as written, from the outermost descriptor to that of the rule
	// Match is exact, wildcard, or any for a key without a value: of the entry that fits best.
	Match string `json:"match"`
	File  string `json:"file"`
	Line  int    `json:"line"`
}

// Places lists at most n rules that have an entry, of any key, which takes the whole
// value: those that fit it better first, in the order of the matchers, and then in the
// order of domains and positions. It looks at each rule once.
func (t *Tree) Places(value string, n int) []Place {
	type fitting struct {
		domain *Domain
		node   *Node
		best   int // the index of the matcher that fits best, on the way to the node
	}
	var found []fitting
	var below func(d *Domain, n *Node, best int)
	below = func(d *Domain, n *Node, best int) {
		for _, child := range n.below {
			best := min(best, child.fits(value))
			if child.Rule != nil && best < len(matchers) {
				found = append(found, fitting{d, child, best})
			}
			below(d, child, best)
		}
	}
	for _, d := range t.Domains() {
		below(d, &d.root, len(matchers))
	}
	slices.SortFunc(found, func(f, g fitting) int {
		return cmp.Or(cmp.Compare(f.best, g.best), cmp.Compare(f.domain.Name, g.domain.Name), f.node.Pos.Compare(g.node.Pos))
	})
	places := make([]Place, min(n, len(found)))
	for i := range places {
		f := &found[i]
		r := f.node.Rule
		match := string(matchers[f.best].by)
		if matchers[f.best].by == Key {
			match = "any"
		}
		places[i] = Place{f.domain.Name, r.Path, f.node.Way(), match, r.Pos.File, r.Pos.Line}
	}
	return places
}

// fits is the index of the first matcher that lets n take a value, whatever the key is;
// len(matchers) if none does.
func (n *Node) fits(value string) int {
	for i := range matchers {
		if matchers[i].matches(Entry{Value: n.Value}, Entry{Value: value}) {
			return i
		}
	}
	return len(matchers)
}

// Way lists the descriptors down to n as they are written.
func (n *Node) Way() []Entry {
	var way []Entry
	for ; n.parent != nil; n = n.parent {
		way = append(way, n.Entry)
	}
	slices.Reverse(way)
	return way
}
