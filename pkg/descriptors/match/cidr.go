package match

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode"

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
// does not allocate, also not for texts that are no address.
func ParseAddress(s string) (netip.Addr, bool) {
	if strings.IndexByte(s, ':') < 0 {
		four, ok := parseFour(s)
		return netip.AddrFrom4(four), ok
	}
	var ip [16]byte
	at, gap := 0, -1 // the bytes read, and of them those before ::
	if strings.HasPrefix(s, "::") {
		gap, s = 0, s[2:]
	}
	for s != "" && at < len(ip) {
		group, digits := 0, 0
		for ; digits < len(s) && digits < 4 && hexValue[s[digits]] > 0; digits++ {
			group = group<<4 | int(hexValue[s[digits]]-1)
		}
		if digits < len(s) && s[digits] == '.' && at <= 12 {
			four, ok := parseFour(s)
			if !ok {
				return netip.Addr{}, false
			}
			at, s = at+copy(ip[at:], four[:]), ""
			break
		}
		if digits == 0 {
			return netip.Addr{}, false
		}
		ip[at], ip[at+1] = byte(group>>8), byte(group)
		at, s = at+2, s[digits:]
		switch {
		case s == "":
		case strings.HasPrefix(s, "::") && gap < 0:
			gap, s = at, s[2:]
		case s[0] != ':' || len(s) == 1:
			return netip.Addr{}, false
		default:
			s = s[1:]
		}
	}
	if s != "" || gap < 0 && at < len(ip) || gap >= 0 && at == len(ip) {
		return netip.Addr{}, false
	}
	if gap >= 0 {
		moved := copy(ip[len(ip)-(at-gap):], ip[gap:at])
		clear(ip[gap : len(ip)-moved])
	}
	return netip.AddrFrom16(ip).Unmap(), true
}

// hexValue is the value of a hexadecimal digit + 1, 0 of other bytes.
var hexValue = func() (of [256]byte) {
	for i, c := range "0123456789abcdef" {
		of[c] = byte(i) + 1
		of[unicode.ToUpper(c)] = byte(i) + 1
	}
	return of
}()

// parseFour reads four numbers with dots between, as netip.ParseAddr does.
func parseFour(s string) (ip [4]byte, ok bool) {
	if len(s) > len("255.255.255.255") {
		return ip, false
	}
	part, digits, number := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9' && (digits == 0 || number > 0):
			if number, digits = number*10+int(c-'0'), digits+1; number > 255 {
				return ip, false
			}
			ip[part] = byte(number)
		case c == '.' && digits > 0 && part < 3:
			part, digits, number = part+1, 0, 0
		default:
			return ip, false
		}
	}
	return ip, part == 3 && digits > 0
}
