package match

import (
	"fmt"
	"net/netip"

	"github.com/gaissmai/bart"
)

// compileNetworks makes the match of networks.
func compileNetworks(m *Match, texts []string) (wrong []Wrong) {
	var all bart.Table[int32]
	for i, text := range texts {
		network, err := parseNetwork(text)
		if _, again := all.Get(network); again {
			err = fmt.Errorf("%s stands in the list twice; write it once", network)
		}
		if err != nil {
			wrong = append(wrong, Wrong{i, err})
			continue
		}
		all.Insert(network, int32(i))
	}
	if wrong != nil {
		return wrong
	}
	m.networks = all.Clone() // a copy lies closer together in memory
	m.verify = func(value string, _ *Work) bool {
		address, ok := ParseAddress(value)
		return ok && m.networks.Contains(address)
	}
	return nil
}

// TakesSome reports whether the match is one of networks, or of all others, and takes an
// address of that network.
func (m *Match) TakesSome(network netip.Prefix) bool {
	switch {
	case m.networks == nil:
		return false
	case m.negated:
		return !m.hasAll(network)
	}
	return m.networks.OverlapsPrefix(network)
}

// hasAll reports whether all addresses of a network are in networks of m.
func (m *Match) hasAll(network netip.Prefix) bool {
	if _, whole := m.networks.LookupPrefix(network); whole || !m.networks.OverlapsPrefix(network) {
		return whole
	}
	bits, upper := network.Bits(), network.Addr().AsSlice()
	upper[bits/8] |= 0x80 >> (bits % 8)
	half, _ := netip.AddrFromSlice(upper)
	return m.hasAll(netip.PrefixFrom(network.Addr(), bits+1)) && m.hasAll(netip.PrefixFrom(half, bits+1))
}

// parseNetwork reads a network as rules have it. The error says what would be right.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
			return netip.Prefix{}, fmt.Errorf("%q is an address; the network of it alone is %s", text, netip.PrefixFrom(address, address.BitLen()))
		}
		return netip.Prefix{}, fmt.Errorf("%q is no network; want one such as 10.0.0.0/8 or 2001:db8::/32", text)
	}
	if address := network.Addr(); address.Is4In6() {
		const mapped = 128 - 32
		if network.Bits() < mapped {
			return netip.Prefix{}, fmt.Errorf("%q has more than IPv4-mapped addresses, which are IPv4; want a network such as 10.0.0.0/8 or 2001:db8::/32", text)
		}
		network = netip.PrefixFrom(address.Unmap(), network.Bits()-mapped)
	}
	if whole := network.Masked(); whole != network {
		return netip.Prefix{}, fmt.Errorf("%q is an address in a network; the network is %s", text, whole)
	}
	return network, nil
}

// ParseAddress is netip.ParseAddr for addresses without a zone; IPv4-mapped ones are IPv4. It
// allocates only for texts that read like an address and are none, such as 1.2.3.999.
func ParseAddress(s string) (netip.Addr, bool) {
	dots, colons := 0, 0
	for i := range min(len(s), maxAddress+1) {
		switch c := s[i]; {
		case c == '.':
			dots++
		case c == ':' && dots == 0: // else a port follows
			colons++
		case (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f'):
			return netip.Addr{}, false
		}
	}
	if dots != 3 && colons < 2 || len(s) > maxAddress {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(s)
	return address.Unmap(), err == nil
}

// maxAddress is the length in bytes of the longest text of an address.
const maxAddress = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
