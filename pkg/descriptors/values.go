package descriptors

import "fmt"

// compileValues makes the match of several values.
func compileValues(m *Match, texts []string) (item int, err error) {
	first := make(map[string]int, len(texts))
	for i, text := range texts {
		if m.fold {
			text = string(appendFolded(nil, text))
		}
		if before, again := first[text]; again {
			return i, fmt.Errorf("%q is the same value as %q before it; write it once", texts[i], texts[before])
		}
		first[text] = i
		m.texts = append(m.texts, text)
	}
	m.verify = func(value string) (found bool) {
		if !m.fold {
			_, found = first[value]
			return found
		}
		var room [foldRoom]byte
		_, found = first[string(appendFolded(room[:0], value))]
		return found
	}
	return 0, nil
}

// putValues implements [Kind] for several values.
func putValues(n *Node) (other *Node, item int) {
	parent := n.parent
	parent.makeIndex(len(n.Match.texts))
	var folded map[string]*Node
	if n.Match.fold {
		folded = parent.foldedValues(n.Key)
	}
	for i, text := range n.Match.texts {
		if other = folded[text]; folded == nil {
			other = parent.sameValue(Entry{n.Key, text})
		}
		if other != nil {
			return other, i
		}
	}
	for _, text := range n.Match.texts {
		if folded != nil {
			folded[text] = n
		} else {
			parent.putValue(Entry{n.Key, text}, n)
		}
	}
	return nil, 0
}

// foldedValues are the values of a key below n as appendFolded has them. One of the values
// for which the case matters stands for all that differ from it in case only.
func (n *Node) foldedValues(key string) map[string]*Node {
	v := n.setsOf(key)
	if v.folded == nil {
		v.folds, v.folded = true, map[string]*Node{}
		n.makeIndex(0)
		for e, child := range n.index {
			if e.Key == key && e.Value != "" && !isPattern(child.Value) {
				v.folded[string(appendFolded(nil, e.Value))] = child
			}
		}
	}
	return v.folded
}

// putValue adds a value that child takes to the index of n.
func (n *Node) putValue(e Entry, child *Node) {
	n.index[e] = child
	if n.sets == nil || e.Value == "" || isPattern(child.Value) {
		return
	}
	if v := n.sets.byKey[e.Key]; v != nil && v.folded != nil {
		v.folded[string(appendFolded(nil, e.Value))] = child
	}
}

// sameValue is the descriptor below n that has the value, also in another case if it ignores
// that; nil if there is none.
func (n *Node) sameValue(e Entry) *Node {
	if other := n.child(e); other != nil {
		return other
	}
	if n.sets == nil || e.Value == "" {
		return nil
	}
	if v := n.sets.byKey[e.Key]; v != nil && v.folded != nil {
		if other := v.folded[string(appendFolded(nil, e.Value))]; other != nil && other.ignoresCase() {
			return other
		}
	}
	return nil
}

// ignoresCase reports whether n takes values in any case.
func (n *Node) ignoresCase() bool { return n.Match != nil && n.Match.fold }
