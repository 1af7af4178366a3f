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

	// below are the descriptors below, in the order of the rules. A short list is compared
	// one by one, which is as fast as hashing; index has those of a longer list, as they
	// are written.
	below []*Node
	index map[Entry]*Node
	// order is the place of the node among those of its parent in the order of the
	// rules, from 1.
	order     int
	wildcards *wildcards // of the descriptors below that have one; nil without any
}

// maxFew is the greatest number of descriptors below a node without an index.
const maxFew = 6

// Grow prepares n for that many more descriptors below it.
func (n *Node) Grow(count int) {
	n.below = slices.Grow(n.below, count)
	if size := len(n.below) + count; n.index == nil && size > maxFew {
		n.index = make(map[Entry]*Node, size)
		for _, child := range n.below {
			n.index[child.Entry] = child
		}
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
	if n.index == nil && len(n.below) == maxFew {
		n.Grow(1)
	}
	n.below = append(n.below, child)
	child.order = len(n.below)
	if n.index != nil {
		n.index[d.Entry] = child
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
	if n.index != nil {
		return n.index[e]
	}
	for _, child := range n.below {
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
	for _, child := range n.below {
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
