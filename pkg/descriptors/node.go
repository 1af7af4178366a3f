package descriptors

import (
	"slices"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors/match"
)

// Descriptor is one descriptor of the rules, as [Node.Add] takes it.
type Descriptor struct {
	Entry // as written; '*' makes it a wildcard, the value "" matches any value
	// Match says which values match, in the place of a value in Entry; nil without one.
	Match *match.Match
	// Mask lets all addresses of a network share one counter.
	Mask Mask
	Pos  document.Position
	// Shared lets all values that match the wildcard, or Match, share one counter.
	Shared bool
	// ValueToMetric puts the request's value into metric keys where the
	// descriptor has a wildcard or no value.
	ValueToMetric bool
	// Rule is nil when the descriptor has no limit of its own. Node.Add sets
	// its Path, Pos and Shared.
	Rule *Rule
}

// HasWildcard reports whether key or value has a wildcard.
func (e Entry) HasWildcard() bool { return match.IsPattern(e.Key) || match.IsPattern(e.Value) }

// Written is the descriptor's key and value as messages show them: the value of a match is ~
// and its text.
func (d *Descriptor) Written() Entry {
	if d.Match != nil {
		return Entry{d.Key, "~" + d.Match.Text()}
	}
	return d.Entry
}

// String is the descriptor in paths of rules: key_value as envoyproxy/ratelimit writes it, or
// key~match.
func (d *Descriptor) String() string {
	if d.Match != nil {
		return d.Key + "~" + d.Match.Text()
	}
	return d.Entry.String()
}

// AnyValue reports whether the descriptor takes every value of its key.
func (d *Descriptor) AnyValue() bool { return d.Value == "" && d.Match == nil }

// Node is the place of one descriptor in a tree, with the descriptors below it.
type Node struct {
	Descriptor
	parent *Node
	path   string // the domain and the descriptors down to this one

	// below are the descriptors below, in the order of the rules. A short list is compared
	// one by one, which is as fast as hashing; index has those of a longer list, and of one
	// with several values in a match, as they are written and by each of the values.
	below []*Node
	index map[Entry]*Node
	// order is the place of the node among those of its parent in the order of the
	// rules, from 1.
	order int
	sets  *sets // of the descriptors below with a wildcard or a match; nil without any
}

// maxFew is the greatest number of descriptors below a node without an index.
const maxFew = 6

// Grow prepares n for that many more descriptors below it.
func (n *Node) Grow(count int) {
	n.below = slices.Grow(n.below, count)
	if len(n.below)+count > maxFew {
		n.makeIndex(count)
	}
}

// makeIndex makes the index, with room for that many more entries.
func (n *Node) makeIndex(count int) {
	if n.index != nil {
		return
	}
	n.index = make(map[Entry]*Node, len(n.below)+count)
	for _, child := range n.below {
		if child.Match == nil {
			n.index[child.Entry] = child
		}
	}
}

// Add puts d below n, after the descriptors that were added before, and returns
// its node. When n has a descriptor with the same key and value, or with the same match, value
// or network among those of d.Match, Add changes nothing and returns nil, the node of the
// other one, and the index of that text of d.Match.
func (n *Node) Add(d Descriptor) (added, repeated *Node, item int) {
	child := &Node{Descriptor: d, parent: n, order: len(n.below) + 1}
	values, fold := []string{d.Value}, false
	if d.Match != nil {
		values, fold = nil, d.Match.Fold
		if d.Match.Exact() && !match.IsPattern(d.Key) {
			values = d.Match.Values
			n.makeIndex(len(values))
		}
	}
	for i, value := range values {
		if other := n.valueOf(d.Key, value, fold); other != nil {
			return nil, other, i
		}
	}
	if d.Match != nil || d.HasWildcard() {
		if other, item := n.makeSets().put(d.Entry, d.Match, child.order); other > 0 {
			return nil, n.below[other-1], item
		}
	}
	child.path = n.path + "." + Printable(d.String())
	if d.Rule != nil {
		d.Rule.place(child)
	}
	if len(n.below) == maxFew {
		n.makeIndex(1)
	}
	n.below = append(n.below, child)
	for _, value := range values {
		n.putValue(value, child)
	}
	return child, nil, 0
}

// valueOf is the descriptor below n that has a single value of a key, also in another case if it
// or the one that is asked for ignores that; nil if there is none.
func (n *Node) valueOf(key, value string, fold bool) *Node {
	if other := n.child(Entry{key, value}); other != nil && !fold {
		return other
	}
	x := n.folded(key, fold)
	if x == nil || value == "" {
		return nil
	}
	if order, ignores := x.Folded(value); order > 0 && (fold || ignores) {
		return n.below[order-1]
	}
	return nil
}

// putValue notes that child takes a value.
func (n *Node) putValue(value string, child *Node) {
	fold := child.Match != nil && child.Match.Fold
	if n.index != nil && !fold {
		n.index[Entry{child.Key, value}] = child
	}
	if x := n.folded(child.Key, fold); x != nil && value != "" && !match.IsPattern(child.Value) {
		x.AddFolded(value, child.order, fold)
	}
}

// folded has the single values of a key without regard to case; nil if no descriptor ignores it,
// unless one shall be added.
func (n *Node) folded(key string, add bool) *match.Index {
	if n.sets == nil && !add {
		return nil
	}
	x := n.makeSets().byKey[key]
	if x != nil && x.HasFolded() {
		return x
	}
	if !add {
		return nil
	}
	x = n.sets.index(key)
	n.makeIndex(0)
	for e, child := range n.index {
		if e.Key == key && e.Value != "" && !match.IsPattern(child.Value) {
			x.AddFolded(e.Value, child.order, false)
		}
	}
	return x
}

// makeSets returns the sets of n, which it makes if there are none.
func (n *Node) makeSets() *sets {
	if n.sets == nil {
		n.sets = &sets{byKey: make(map[string]*match.Index), same: make(map[matched]int)}
	}
	return n.sets
}

// seal prepares n and the nodes below it for look-ups.
func (n *Node) seal() {
	if n.sets != nil {
		for _, x := range n.sets.byKey {
			x.Seal()
		}
	}
	for _, child := range n.below {
		child.seal()
	}
}

// child finds a descriptor as it is written, or by one of the values of its match.
func (n *Node) child(e Entry) *Node {
	if n.index != nil {
		return n.index[e]
	}
	for _, child := range n.below {
		if child.Entry == e && child.Match == nil {
			return child
		}
	}
	return nil
}

// next finds the descriptor below n that takes e, or nil.
func (n *Node) next(w *match.Work, e Entry) *Node {
	if e.Value != "" { // leaves a descriptor without a value to the last line
		if found := n.child(e); found != nil {
			return found
		}
	}
	if n.sets != nil {
		if order := n.sets.find(w, e); order <= len(n.below) {
			return n.below[order-1]
		}
	}
	return n.child(Entry{Key: e.Key})
}

// find finds the rule for entries that are looked up from below n on, or nil.
func (n *Node) find(w *match.Work, entries []Entry) *Rule {
	for _, e := range entries {
		if n = n.next(w, e); n == nil {
			return nil
		}
	}
	return n.Rule
}

// walk calls do for the rules of n and of the nodes below it, in the order of the rules.
func (n *Node) walk(do func(*Rule)) {
	if n.Rule != nil {
		do(n.Rule)
	}
	for _, child := range n.Children() {
		child.walk(do)
	}
}

// Children lists the descriptors directly below n in the order of their positions in the
// rules.
func (n *Node) Children() []*Node {
	all := slices.Clone(n.below)
	slices.SortStableFunc(all, func(a, b *Node) int { return a.Pos.Compare(b.Pos) })
	return all
}

// Nodes lists the descriptors down to n.
func (n *Node) Nodes() []*Node {
	var way []*Node
	for ; n.parent != nil; n = n.parent {
		way = append(way, n)
	}
	slices.Reverse(way)
	return way
}

// Way lists the descriptors down to n as they are written.
func (n *Node) Way() []Entry {
	var way []Entry
	for _, n := range n.Nodes() {
		way = append(way, n.Written())
	}
	return way
}

// place sets the fields that follow from the rule's place n in the tree.
func (r *Rule) place(n *Node) {
	way := n.Nodes()
	r.Path, r.Pos, r.FixedMetricKey, r.depth = n.path, n.Pos, !r.DetailedMetric, uint32(len(way))
	names := func(list *[]Naming, i int, naming Naming) {
		if *list == nil {
			*list = make([]Naming, len(way))
		}
		(*list)[i] = naming
	}
	reserves := r.Reserves()
	for i, a := range way {
		naming := a.naming()
		if reserves && a == n {
			naming = Naming{Pattern: Entry{Value: n.Value}, LeftOut: true}
		}
		if (naming != Naming{}) {
			names(&r.Shared, i, naming)
		}
		if naming.LeftOut || naming.Mask != (Mask{}) {
			names(&r.Brought, i, naming)
		}
		r.FixedMetricKey = r.FixedMetricKey && !match.IsPattern(a.Key) && !(a.ValueToMetric && (a.Value == "" || match.IsPattern(a.Value)))
	}
	if !r.FixedMetricKey || r.Shared != nil {
		r.way = way
	}
	if r.Table != nil {
		for _, v := range r.Variants()[1:] {
			v.place(n)
		}
	}
}

// naming is the element of [Rule.Shared] for n, unless its value is the id of a reservation.
func (n *Node) naming() Naming {
	switch {
	case n.Mask != Mask{}:
		return Naming{Mask: n.Mask}
	case !n.Descriptor.Shared:
		return Naming{}
	case n.Match != nil && match.IsPattern(n.Key):
		return Naming{Match: string(appendEscaped(nil, n.Key, inKey|star)) + "~" + matchID(n.Match)}
	case n.Match != nil:
		return Naming{Match: matchID(n.Match)}
	case match.IsPattern(n.Key): // it differs from the patterns of values
		return Naming{Pattern: n.Entry}
	}
	return Naming{Pattern: Entry{Value: n.Value}}
}

// HiddenBy returns a descriptor beside n that takes every entry that n could match, so that n
// never gets one: a wildcard or a match that comes before n, or one for any value if n has a key
// and no value. It returns nil if n can be reached, or if that is not certain: an expression
// hides only what every text with its literals is, and a negated match hides nothing. A descriptor
// with an exact value or with networks can always be reached.
//
// HiddenBy looks for one such descriptor; it does not find the several descriptors
// that hide n only together.
func (n *Node) HiddenBy() *Node {
	if n.parent == nil || n.parent.sets == nil || n.Value != "" && !n.HasWildcard() || n.Match != nil && n.Match.Rank() != match.InOrder {
		return nil
	}
	before := n.order
	if n.AnyValue() && !n.HasWildcard() {
		before = len(n.parent.below) + 1
	}
	// A pattern matches all texts of another pattern exactly if it matches that pattern as a
	// text: only a '*' can take the other's '*'. The text of "any value" is "", which only the
	// patterns of any value match.
	s, text := n.parent.sets, n.Value
	if n.Match != nil {
		text = n.Match.Outline()
	}
	first := s.findPlain(Entry{n.Key, text})
	if n.Match != nil && n.Match.Fold && s.findPlain(Entry{n.Key, strings.ToUpper(text)}) != s.findPlain(Entry{n.Key, strings.ToLower(text)}) {
		first = before // the first one minds the case
	}
	if first < before {
		// With a wildcard in its key it takes this text by chance, if it has more than a literal or
		// a '*' in it.
		m := n.parent.below[first-1].Match
		if !m.Plain() || m != nil && !m.Takes(match.WithoutStars(text)) {
			first = before
		}
	}
	if first >= before {
		return nil
	}
	return n.parent.below[first-1]
}
