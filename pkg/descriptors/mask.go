package descriptors

import (
	"net/netip"

	"example.org/rls/pkg/descriptors/match"
)

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

// entry is the element of [Rule.Shared] for the mask.
func (m Mask) entry() Entry { return Entry{Masked, string([]byte{m.IPv4, m.IPv6})} }

// maskOf is the mask of an element of [Rule.Shared].
func maskOf(e Entry) Mask { return Mask{e.Value[0], e.Value[1]} }

// maskedAddress is an address of a network that Mask.Of returned; other texts stay.
func maskedAddress(text string) string {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Addr().String()
	}
	return text
}
