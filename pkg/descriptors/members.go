package descriptors

// members finds the first of many descriptors of one key whose match takes a value. Those
// with a literal are looked for by it, so that their number makes little difference: by one
// walk over the beginning of the value, one over its end, and one over all of it.
type members struct {
	rest    []*Node    // without a literal
	literal [2]indexes // of those that mind the case, and of those that ignore it
}

// indexes are the descriptors with a literal, by the side on which it stands.
type indexes [anywhere + 1]trie

// any reports whether there are descriptors.
func (ms *members) any() bool { return ms.rest != nil || ms.literal[0].any() || ms.literal[1].any() }

func (is *indexes) any() bool {
	return is[atStart].nodes != nil || is[atEnd].nodes != nil || is[anywhere].nodes != nil
}

// add takes a descriptor that comes after the others in the order of the rules.
func (ms *members) add(n *Node) {
	m := n.Match
	if m.literal.text == "" || m.negated {
		ms.rest = append(ms.rest, n)
		return
	}
	is := &ms.literal[0]
	if m.fold {
		is = &ms.literal[1]
	}
	is[m.literal.at].add(m.literal.text, n, m.literal.at == atEnd)
}

// link makes the index ready for find. No descriptor may be added afterwards.
func (ms *members) link() {
	for i := range ms.literal {
		if t := &ms.literal[i][anywhere]; t.nodes != nil {
			t.link()
		}
	}
}

// find returns the first descriptor that takes a value, or nil if it does not come before
// order.
func (ms *members) find(value string, folded []byte, order int) (first *Node) {
	if is := &ms.literal[0]; is.any() {
		first, order = search(is, value, value, order)
	}
	if is := &ms.literal[1]; is.any() {
		if n, at := search(is, folded, value, order); n != nil {
			first, order = n, at
		}
	}
	for _, n := range ms.rest {
		if n.order >= order {
			break
		}
		if n.Match.takes(value, folded) {
			return n
		}
	}
	return first
}

// search looks for literals in text, which is the value or what appendFolded makes of it.
func search[T string | []byte](is *indexes, text T, value string, order int) (first *Node, before int) {
	found := hits{value: value, order: order}
	if t := &is[atStart]; t.nodes != nil {
		at := int32(0)
		for i := 0; i < len(text); i++ {
			if at = t.child(at, text[i]); at == 0 {
				break
			}
			found.add(t.ends[t.nodes[at].ends])
		}
	}
	if t := &is[atEnd]; t.nodes != nil {
		at := int32(0)
		for i := len(text) - 1; i >= 0; i-- {
			if at = t.child(at, text[i]); at == 0 {
				break
			}
			found.add(t.ends[t.nodes[at].ends])
		}
	}
	if t := &is[anywhere]; t.nodes != nil {
		at := int32(0)
		for i := 0; i < len(text); i++ {
			at = t.step(at, text[i])
			for end := t.nodes[at].nearest; end != 0; end = t.nodes[t.nodes[end].fail].nearest {
				found.add(t.ends[t.nodes[end].ends])
			}
		}
	}
	return found.first, found.order
}

// hits keeps the first of the descriptors whose literals are found.
type hits struct {
	value string
	first *Node
	order int
}

func (h *hits) add(nodes []*Node) {
	for _, n := range nodes {
		if n.order >= h.order {
			return
		}
		if m := n.Match; m.verify == nil || m.verify(h.value) {
			h.first, h.order = n, n.order
			return
		}
	}
}
