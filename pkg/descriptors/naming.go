package descriptors

import (
	"net/netip"
	"strings"

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

// MetricKey is the name under which envoyproxy/ratelimit counts a request whose
// entries matched the rule. Keys and values are [Printable]; domain must be.
//
// With detailed_metric it has the request's keys and values; with
// value_to_metric the request's value where the rule has a wildcard or no value.
// With share_threshold the pattern or the match replaces the value in both, and with mask the
// network does.
func (r *Rule) MetricKey(domain string, entries []Entry) string {
	if r.FixedMetricKey || len(entries) != len(r.way) {
		return r.Path
	}
	var b strings.Builder
	b.WriteString(domain)
	for i, e := range entries {
		b.WriteByte('.')
		b.WriteString(Printable(e.Key))
		n := r.way[i]
		if own := (r.DetailedMetric || n.ValueToMetric) && !n.Descriptor.Shared; n.Match != nil && !own && !match.IsPattern(n.Key) {
			b.WriteString(Printable(strings.TrimPrefix(n.String(), n.Key)))
			continue
		}
		v := Printable(n.metricValue(e, r.DetailedMetric))
		// A detailed metric without a shared pattern keeps the underscore of an
		// empty value.
		if v != "" || r.DetailedMetric && r.Shared == nil {
			b.WriteByte('_')
			b.WriteString(v)
		}
	}
	return b.String()
}

// metricValue is the value of e in a metric key.
func (n *Node) metricValue(e Entry, detailed bool) string {
	switch {
	case (detailed || n.ValueToMetric) && !n.Descriptor.Shared:
		return n.Mask.Of(e.Value)
	case match.IsPattern(n.Key):
		return strings.TrimPrefix(n.String(), e.Key+"_")
	}
	return n.Value
}
