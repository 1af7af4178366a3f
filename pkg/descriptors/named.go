package descriptors

import (
	"net/netip"
	"strings"

	"example.org/rls/pkg/descriptors/match"
)

// MatchNamed is [Domain.Match] for entries as people are told them (see [Named]): the text of a
// match whose values share a counter finds that match, and a network the descriptor that counts
// its addresses together. A request of a client with such a text does not.
func (d *Domain) MatchNamed(entries []Entry) *Rule {
	if d == nil {
		return nil
	}
	n := &d.root
	for _, e := range entries {
		if n = n.named(e); n == nil {
			return nil
		}
	}
	return n.Rule.of(entries)
}

// named is next for an entry as [Named] has it. A network goes to a descriptor that counts its
// addresses together rather than to one that takes the text.
func (n *Node) named(e Entry) *Node {
	address := Entry{e.Key, maskedAddress(e.Value)}
	if address == e && !strings.HasPrefix(e.Value, "~") || n.child(e) != nil {
		return n.next(nil, e)
	}
	if winner := n.next(nil, address); winner != nil && winner.isNamed(e, address) {
		return winner
	}
	var best *Node // where the first address of a network goes to another descriptor
	for _, child := range n.below {
		if child.isNamed(e, address) && (best == nil || child.takes(address) < best.takes(address)) {
			best = child
		}
	}
	if best != nil {
		return best
	}
	return n.next(nil, e)
}

// isNamed reports whether people are told e of requests that n takes. address is e with an
// address in the place of a network.
func (n *Node) isNamed(e, address Entry) bool {
	naming := n.naming()
	key := match.NewPattern(n.Key)
	switch {
	case naming == Naming{}, !key.Takes(e.Key):
		return false
	case !naming.Shared() && (address == e || !n.takesSome(e, address)):
		return false
	}
	return Named([]Naming{naming}, 0, address) == e
}

// takesSome reports whether n takes an address of the network e, the first of which is address.
func (n *Node) takesSome(e, address Entry) bool {
	if n.takes(address) != match.NoRank {
		return true
	}
	network, err := netip.ParsePrefix(e.Value)
	return err == nil && n.Match != nil && n.Match.TakesSome(network)
}
