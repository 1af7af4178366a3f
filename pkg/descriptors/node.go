package descriptors

import "slices"

// Descriptor is one descriptor of the rules, as [Node.Add] takes it.
type Descriptor struct {
	Entry // as written; '*' makes it a wildcard, the value "" matches any value
	Pos   Position
	// Shared lets all values that match the wildcard share one counter.
	Shared bool
	// ValueToMetric puts the request's value into metric keys where the
	// descriptor has a wildcard or no value.
	ValueToMetric bool
	// Rule is nil when the descriptor has no limit of its own. Node.Add sets
	// its Path, Pos and Shared.
	Rule *Rule
}

// Node is the place of one descriptor in a tree, with the descriptors below it.
type Node struct {
	Descriptor
	parent *Node
	path   string // the domain and the descriptors down to this one

	// The descriptors below, as they are written. A short list is compared one
	// by one, which is as fast as hashing; a longer list is kept in many.
	few  []*Node
	many map[Entry]*Node
	size int
	// order is the place of the node among those of its parent in the order of the
	// rules, from 1.
	order     int
	wildcards *wildcards // of the descriptors below that have one; nil without any
}

// maxFew is the greatest number of descriptors in Node.few.
const maxFew = 6

// Grow prepares n for that many more descriptors below it.
func (n *Node) Grow(count int) {
	if n.many == nil && n.size+count > maxFew {
		n.many = make(map[Entry]*Node, n.size+count)
		for _, child := range n.few {
			n.many[child.Entry] = child
		}
		n.few = nil
	}
	if n.many == nil && n.few == nil && count > 0 {
		n.few = make([]*Node, 0, count)
	}
}

// Add puts d below n, after the descriptors that were added before, and returns
// its node. When n has a descriptor with the same key and value, Add changes
// nothing and returns nil and the node of the other one.
func (n *Node) Add(d Descriptor) (added, repeated *Node) {
	if other := n.child(d.Entry); other != nil {
		return nil, other
	}
	child := &Node{Descriptor: d, parent: n}
	child.path = n.path + "." + d.String()
	if d.Rule != nil {
		d.Rule.place(child)
	}
	n.size++
	child.order = n.size
	if n.many == nil && n.size > maxFew {
		n.Grow(1)
	}
	if n.many != nil {
		n.many[d.Entry] = child
	} else {
		n.few = append(n.few, child)
	}
	if d.HasWildcard() {
		if n.wildcards == nil {
			n.wildcards = &wildcards{values: make(map[string]*globs)}
		}
		n.wildcards.add(child)
	}
	return child, nil
}

// child finds a descriptor as it is written.
func (n *Node) child(e Entry) *Node {
	if n.many != nil {
		return n.many[e]
	}
	for _, child := range n.few {
		if child.Entry == e {
			return child
		}
	}
	return nil
}

// walk calls do for the rules of n and of the nodes below it.
func (n *Node) walk(do func(*Rule)) {
	if n.Rule != nil {
		do(n.Rule)
	}
	n.each(func(child *Node) { child.walk(do) })
}

// each calls do for the nodes right below n, in no particular order.
func (n *Node) each(do func(*Node)) {
	for _, child := range n.few {
		do(child)
	}
	for _, child := range n.many {
		do(child)
	}
}

// Children lists the descriptors directly below n in the order of their positions in the
// rules.
func (n *Node) Children() []*Node {
	all := make([]*Node, 0, n.size)
	n.each(func(child *Node) { all = append(all, child) })
	slices.SortStableFunc(all, func(a, b *Node) int { return a.Pos.Compare(b.Pos) })
	return all
}
