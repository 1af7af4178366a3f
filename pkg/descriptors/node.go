package descriptors

// node is one descriptor of the compiled rules.
type node struct {
	rule *Rule // nil when it has no limit
	pos  Position

	// The descriptors below, by key and value ("" for none), patterns as they
	// are written: in few while they are few, which is most of the time, and
	// in many from then on.
	few  []edge
	many map[Entry]*node
	wild *wildcards // nil when none has a wildcard
	size int
}

type edge struct {
	Entry
	node *node
}

// maxFew is up to how many descriptors comparing each is as fast as hashing.
const maxFew = 6

// grow prepares for that many more descriptors below n.
func (n *node) grow(count int) {
	if n.many == nil && n.size+count > maxFew {
		n.many = make(map[Entry]*node, n.size+count)
		for _, e := range n.few {
			n.many[e.Entry] = e.node
		}
		n.few = nil
	}
	if n.many == nil && n.few == nil && count > 0 {
		n.few = make([]edge, 0, count)
	}
}

func (n *node) add(e Entry, child *node) {
	n.size++
	if n.many != nil {
		n.many[e] = child
	} else {
		n.few = append(n.few, edge{e, child})
	}
	if isPattern(e.Key) || isPattern(e.Value) {
		if n.wild == nil {
			n.wild = new(wildcards)
		}
		n.wild.add(e, child, n.size)
	}
}

// child finds a descriptor as it is written.
func (n *node) child(e Entry) *node {
	if n.many != nil {
		return n.many[e]
	}
	for i := range n.few {
		if n.few[i].Entry == e {
			return n.few[i].node
		}
	}
	return nil
}

// next finds the descriptor that an entry of a request leads to, or nil.
func (n *node) next(e Entry) *node {
	if e.Value != "" {
		if c := n.child(e); c != nil {
			return c
		}
	}
	if n.wild != nil {
		if c := n.wild.find(e); c != nil {
			return c
		}
	}
	return n.child(Entry{Key: e.Key})
}

// walk calls do for every rule at n and below.
func (n *node) walk(do func(*Rule)) {
	if n.rule != nil {
		do(n.rule)
	}
	for _, e := range n.few {
		e.node.walk(do)
	}
	for _, c := range n.many {
		c.walk(do)
	}
}
