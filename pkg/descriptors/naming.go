package descriptors

import (
	"net/netip"

	"example.org/rls/pkg/descriptors/match"
)

// Naming says what stands in the place of an entry's value in the names of callers (see
// [AppendID]). The zero Naming leaves the value as it is. At most one of the fields is set, beside
// which LeftOut can have a Pattern.
type Naming struct {
	// Pattern stands for all values that it matches. Its Key is "" unless the wildcard is in the
	// key. With LeftOut it is what people are told in the place of the value.
	Pattern Entry
	// Match is the text of a match, escaped as in names, which stands for all values that it
	// takes: cidr:10.0.0.0/8. If the key has a wildcard, the key and ~ stand before it.
	Match string
	// Mask has the network of an address in the place of the address.
	Mask Mask
	// LeftOut: the value is the id of a reservation, and in no name.
	LeftOut bool
}

// NamingOf is shared[i], or the zero Naming beyond its end.
func NamingOf(shared []Naming, i int) *Naming {
	if i < len(shared) {
		return &shared[i]
	}
	return &asItIs
}

var asItIs Naming

// Shared reports whether all values that the descriptor takes have one name.
func (n *Naming) Shared() bool { return *n != Naming{Mask: n.Mask} }

// append appends what [AppendID] has behind the key of an entry with that value.
func (n *Naming) append(dst []byte, value string) []byte {
	switch {
	case n.LeftOut:
		return dst
	case n.Match != "":
		return append(append(dst, '~'), n.Match...)
	case n.Pattern.Key != "":
		dst = appendEscaped(append(dst, '='), n.Pattern.Key, inValue|star)
		return appendEscaped(append(dst, "%3D"...), n.Pattern.Value, inValue|star)
	case n.Pattern.Value != "":
		return appendEscaped(append(dst, '='), n.Pattern.Value, inValue|star)
	case value == "":
		return dst
	}
	if network, ok := n.Mask.network(value); ok {
		return network.AppendTo(append(dst, '='))
	}
	return appendEscaped(append(dst, '='), value, inValue)
}

// Named is the entry i of a request as people are told it where names have it with shared: with
// the pattern, the text of the match with ~ before it, or the network in the place of the value.
func Named(shared []Naming, i int, e Entry) Entry {
	switch n := NamingOf(shared, i); {
	case n.Match != "":
		text, _ := unescape(n.Match)
		e.Value = "~" + text
	case n.Shared():
		e.Value = n.Pattern.Value
	default:
		e.Value = n.Mask.Of(e.Value)
	}
	return e
}

// Mask says by which bits of their addresses clients are counted together. The zero Mask
// counts each address for itself.
type Mask struct {
	IPv4, IPv6 uint8 // the bits of networks; 0: addresses stay as they are
}

// Of is the network of an address, such as 192.0.2.0/24. Another text stays as it is.
func (m Mask) Of(value string) string {
	if network, ok := m.network(value); ok {
		return network.String()
	}
	return value
}

// network is the network of an address; false for other texts.
func (m Mask) network(value string) (netip.Prefix, bool) {
	if m == (Mask{}) {
		return netip.Prefix{}, false
	}
	address, ok := match.ParseAddress(value)
	bits := m.IPv6
	if address.Is4() {
		bits = m.IPv4
	}
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	network, err := address.Prefix(int(bits))
	return network, err == nil
}

// maskedAddress is an address of a network that Mask.Of returned; other texts stay.
func maskedAddress(text string) string {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Addr().String()
	}
	return text
}
