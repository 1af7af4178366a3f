package descriptors

import (
	"example.org/rls/pkg/descriptors/match"
)

// By is the way in which a descriptor of the rules matches an entry: one of these, or the
// name of a kind of match, such as cidr.
type By string

// The ways without match. Nothing says that none matched.
const (
	Exact    By = "exact"    // the entry's key and value
	Wildcard By = "wildcard" // a '*' in key or value
	Key      By = "key"      // the entry's key, and no value
	Nothing  By = "none"
)

// won says why the descriptor that took an entry in a way of that rank goes first.
var won = [match.NoRank]string{
	match.ByValue: "it has the entry's key and value", match.ByNetwork: "its network is the longest that has the address",
	match.InOrder: "it is the first descriptor whose wildcards match", match.ByKey: "it has the entry's key and no value",
}

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

// next finds the descriptor below n that takes e, or nil.
func (n *Node) next(e Entry) *Node {
	if e.Value != "" { // leaves a descriptor without a value to the last line
		if found := n.child(e); found != nil {
			return found
		}
	}
	if n.sets != nil {
		if order := n.sets.find(e); order <= len(n.below) {
			return n.below[order-1]
		}
	}
	return n.child(Entry{Key: e.Key})
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

// fits is the rank of the way in which n takes a value, whatever the key is; match.NoRank if it
// does not.
func (n *Node) fits(value string) match.Rank {
	switch {
	case n.Match != nil && n.Match.Takes(value):
		return n.Match.Rank()
	case n.Match != nil:
	case n.Value == "":
		return match.ByKey
	case n.Value == value:
		return match.ByValue
	case match.IsPattern(n.Value):
		if p := match.NewPattern(n.Value); p.Takes(value) {
			return match.InOrder
		}
	}
	return match.NoRank
}

// takes is the rank of the way in which n takes an entry, whether or not another descriptor
// goes first; match.NoRank if it does not.
func (n *Node) takes(e Entry) match.Rank {
	is := n.fits(e.Value)
	if match.IsPattern(n.Key) {
		key := match.NewPattern(n.Key)
		switch {
		case is == match.NoRank || !key.Takes(e.Key):
			return match.NoRank
		case is == match.ByValue && n.Entry == e:
			return match.ByValue
		}
		return match.InOrder
	}
	if n.Key != e.Key {
		return match.NoRank
	}
	return is
}

// by is the way in which n takes entries in a way of rank r.
func (n *Node) by(r match.Rank) By {
	switch {
	case r == match.NoRank:
		return Nothing
	case n.Match != nil:
		return By(n.Match.By())
	}
	return [...]By{match.ByValue: Exact, match.InOrder: Wildcard, match.ByKey: Key}[r]
}
