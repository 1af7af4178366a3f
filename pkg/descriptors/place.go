package descriptors

import (
	"cmp"
	"slices"
)

// Place is a rule in which a value can stand.
type Place struct {
	Domain string
	Rule   *Rule
	Path   []Entry // as written, from the outermost descriptor to that of the rule
	By     By      // how the entry that fits the value best matches it
}

// Places lists at most n rules that have an entry, of any key, which takes the whole
// value: those that fit it better first, in the order of the matchers, and then in the
// order of domains and positions. It looks at each rule once.
func (t *Tree) Places(value string, n int) []Place {
	f := finder{value: value, room: max(0, n)}
	for _, d := range t.Domains() {
		f.below(d, &d.root, len(matchers))
	}
	f.keepBest()
	places := make([]Place, len(f.found))
	for i, at := range f.found {
		places[i] = Place{at.domain.Name, at.node.Rule, at.node.written(), matchers[at.best].by}
	}
	return places
}

// finder keeps the best of the rules in which a value can stand.
type finder struct {
	value string
	room  int
	found []fitting
	full  bool // found[room-1] is the worst of the best so far
}

// fitting is a rule whose best matcher of a value has the index best.
type fitting struct {
	domain *Domain
	node   *Node
	best   int
}

func (f fitting) compare(g fitting) int {
	return cmp.Or(cmp.Compare(f.best, g.best), cmp.Compare(f.domain.Name, g.domain.Name), f.node.Pos.Compare(g.node.Pos))
}

// below looks at the nodes below n. best is the index of the best matcher on the way to n.
func (f *finder) below(d *Domain, n *Node, best int) {
	for _, child := range n.below {
		best := min(best, child.fits(f.value))
		if child.Rule != nil && best < len(matchers) {
			f.add(fitting{d, child, best})
		}
		f.below(d, child, best)
	}
}

func (f *finder) add(g fitting) {
	if f.full && g.compare(f.found[f.room-1]) >= 0 {
		return
	}
	if f.found = append(f.found, g); len(f.found) > 2*f.room {
		f.keepBest()
		f.full = f.room > 0
	}
}

func (f *finder) keepBest() {
	slices.SortFunc(f.found, fitting.compare)
	f.found = f.found[:min(f.room, len(f.found))]
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

// written lists the descriptors down to n as they are written.
func (n *Node) written() []Entry {
	var way []Entry
	for ; n.parent != nil; n = n.parent {
		way = append(way, n.Entry)
	}
	slices.Reverse(way)
	return way
}
