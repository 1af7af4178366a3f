package descriptors

// By is the way in which a descriptor of the rules matches an entry.
type By string

// The ways, in the order of precedence. Nothing says that none matched.
const (
	Exact    By = "exact"    // the entry's key and value
	Wildcard By = "wildcard" // a '*' in key or value
	Key      By = "key"      // the entry's key, and no value
	Nothing  By = "none"
)

// matcher is one way to find the descriptor that an entry leads to.
type matcher struct {
	by  By
	why string // the property of the descriptors that this matcher finds
	// matches reports whether a descriptor, as it is written, matches an entry in
	// this way.
	matches func(written, e Entry) bool
	// find looks an entry up among the descriptors below a node; nil if none matches.
	find func(*Node, Entry) *Node
}

// matchers are asked one after the other; the first that finds a descriptor
// wins.
var matchers = [...]matcher{
	{
		by: Exact, why: "it has the entry's key and value",
		matches: func(written, e Entry) bool { return e.Value != "" && written == e },
		find: func(n *Node, e Entry) *Node {
			if e.Value == "" {
				return nil // leaves a descriptor without a value to the matcher Key
			}
			return n.child(e)
		},
	},
	{
		by: Wildcard, why: "it is the first descriptor whose wildcards match",
		matches: Entry.matchesByWildcard,
		find:    func(n *Node, e Entry) *Node { return n.wildcards.find(e) },
	},
	{
		by: Key, why: "it has the entry's key and no value",
		matches: func(written, e Entry) bool { return written == Entry{Key: e.Key} },
		find:    func(n *Node, e Entry) *Node { return n.child(Entry{Key: e.Key}) },
	},
}

// next finds the descriptor below n that takes e, or nil.
func (n *Node) next(e Entry) *Node {
	for i := range matchers {
		if found := matchers[i].find(n, e); found != nil {
			return found
		}
	}
	return nil
}

// find finds the rule for entries that are looked up from below n on, or nil.
func (n *Node) find(entries []Entry) *Rule {
	for _, e := range entries {
		if n = n.next(e); n == nil {
			return nil
		}
	}
	return n.Rule
}

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
	// A pattern matches all texts of another pattern exactly if it matches that
	// pattern as a text: only a '*' can take the other's '*'. The text of "any
	// value" is "", which only the patterns of any value match.
	if first := n.parent.wildcards.find(n.Entry); first != n {
		return first
	}
	return nil
}
