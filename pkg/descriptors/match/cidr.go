package match

import (
	"fmt"
	"net/netip"
	"slices"
)

// compileNetworks makes the match of networks.
func compileNetworks(m *Match, texts []string) (wrong []Wrong) {
	known := make(map[netip.Prefix]bool, len(texts))
	m.networks = make([]network, len(texts))
	for i, text := range texts {
		prefix, err := parseNetwork(text)
		if err == nil && known[prefix] {
			err = fmt.Errorf("%s stands in the list twice; write it once", prefix)
		}
		if err != nil {
			wrong = append(wrong, Wrong{i, err})
			continue
		}
		known[prefix], m.networks[i].Prefix = true, prefix
	}
	if wrong != nil {
		return wrong
	}
	m.set = newNetworks(slices.Clone(m.networks))
	m.verify = func(value string, _ *Work) bool {
		address, ok := ParseAddress(value)
		if !ok {
			return false
		}
		_, bits := m.set.find(address)
		return bits >= 0
	}
	return nil
}

// TakesSome reports whether the match is one of networks, or of all others, and takes an
// address of that network.
func (m *Match) TakesSome(network netip.Prefix) bool {
	return m.set != nil && m.set.some(network, !m.negated)
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
