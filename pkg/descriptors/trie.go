package descriptors

import "bytes"

// trie finds texts in other texts, byte by byte. Its node 0 is the root. A trie that was
// linked is an Aho-Corasick automaton.
type trie struct {
	nodes    []trieNode
	branches []branch
	ends     [][]*Node // the first is empty
}

// trieNode is the place of a text in a trie.
type trieNode struct {
	// next is the one child, to which char leads; if it is negative, the children are those
	// of branches[^next], and 0 stands for none.
	next int32
	char byte
	ends int32 // the index of the descriptors whose text ends here
	// Set by link: the node of the longest other text in which the text of this node ends, and
	// the longest of these at which a descriptor's text ends, which may be the node itself.
	fail, nearest int32
}

// branch has the children of a node with several.
type branch struct {
	chars []byte
	next  []int32
}

// add adds the text of a descriptor, read from its end if backwards is true.
func (t *trie) add(text string, n *Node, backwards bool) {
	if t.nodes == nil {
		t.nodes, t.ends = make([]trieNode, 1), make([][]*Node, 1)
	}
	at := int32(0)
	for i := range len(text) {
		c := text[i]
		if backwards {
			c = text[len(text)-1-i]
		}
		child := t.child(at, c)
		if child == 0 {
			child = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{})
			t.lead(&t.nodes[at], c, child)
		}
		at = child
	}
	end := &t.nodes[at].ends
	if *end == 0 {
		*end = int32(len(t.ends))
		t.ends = append(t.ends, nil)
	}
	t.ends[*end] = append(t.ends[*end], n)
}

// lead adds a child to a node.
func (t *trie) lead(from *trieNode, c byte, child int32) {
	switch {
	case from.next == 0:
		from.next, from.char = child, c
		return
	case from.next > 0:
		t.branches = append(t.branches, branch{[]byte{from.char}, []int32{from.next}})
		from.next = ^int32(len(t.branches) - 1)
	}
	b := &t.branches[^from.next]
	b.chars, b.next = append(b.chars, c), append(b.next, child)
}

// child is the child of a node to which c leads, 0 if there is none.
func (t *trie) child(at int32, c byte) int32 {
	n := &t.nodes[at]
	switch {
	case n.next < 0:
		b := &t.branches[^n.next]
		if i := bytes.IndexByte(b.chars, c); i >= 0 {
			return b.next[i]
		}
	case n.next > 0 && n.char == c:
		return n.next
	}
	return 0
}

// children lists the children of a node.
func (t *trie) children(at int32) branch {
	switch n := &t.nodes[at]; {
	case n.next < 0:
		return t.branches[^n.next]
	case n.next > 0:
		return branch{[]byte{n.char}, []int32{n.next}}
	}
	return branch{}
}

// step is the node of the longest text in which the text of a node, followed by c, ends. The
// trie is linked.
func (t *trie) step(at int32, c byte) int32 {
	for {
		if child := t.child(at, c); child != 0 || at == 0 {
			return child
		}
		at = t.nodes[at].fail
	}
}

// link makes the trie ready for step. No text may be added afterwards.
func (t *trie) link() {
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		under := t.children(at)
		for i, child := range under.next {
			n := &t.nodes[child]
			if at != 0 {
				n.fail = t.step(t.nodes[at].fail, under.chars[i])
			}
			if n.nearest = child; n.ends == 0 {
				n.nearest = t.nodes[n.fail].nearest
			}
		}
		queue = append(queue, under.next...)
	}
}
