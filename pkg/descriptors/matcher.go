package descriptors

import "example.org/rls/pkg/descriptors/match"

// won says why the descriptor that took an entry in a way of that rank goes first.
var won = [match.NoRank]string{
	match.ByValue: "it has the entry's key and value", match.ByNetwork: "its network is the longest that has the address",
	match.InOrder: "it is the first descriptor whose wildcards match", match.ByKey: "it has the entry's key and no value",
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
