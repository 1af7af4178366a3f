package descriptors

// HiddenBy returns the descriptor beside n that takes every entry that n could
// match, so that n never gets one: a wildcard that comes before the wildcard n, or
// any wildcard if n has a key and no value. It returns nil if n can be reached. A
// descriptor with an exact value always can.
//
// HiddenBy looks for one such descriptor; it does not find the several descriptors
// that hide n only together.
func (n *Node) HiddenBy() *Node {
	if n.parent == nil || n.Value != "" && !n.HasWildcard() {
		return nil
	}
	for i := range matchers {
		if matchers[i].by != Wildcard {
			continue
		}
		// A pattern matches all texts of another pattern exactly if it matches that
		// pattern as a text: only a '*' can take the other's '*'. The text of "any
		// value" is "", which only the patterns of any value match.
		if first := n.parent.ask(i, n.Entry); first != n {
			return first
		}
	}
	return nil
}
