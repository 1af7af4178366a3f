package descriptors

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors/match"
)

// The Keys of elements of [Rule.Shared] that are no patterns, which have a '*' in the key.
const (
	// LeftOut: the entry is in names without its value, which is the id of a reservation.
	LeftOut = "\x00"
	// Matched: the entry is in names with its key, ~ and the element's Value, which is escaped.
	Matched = "~"
	// Masked: the entry's value is in names as [Mask.Of] has it; the mask is the element's
	// Value (see maskOf).
	Masked = "/"
)

// AppendID appends the readable name of the caller that a limit counts to dst,
// as in bench|user=v0-12, and returns the result. Different domains, entries or
// shared never give the same name: every byte that could break a store's key or
// that separates the parts of a name is written as %XX.
//
// shared is [Rule.Shared]: a pattern shared[i] replaces the value of entries[i].
// The '*' in it stay; the '*' in a value become %2A. The text of a match stands for
// key and value: ip~cidr:10.0.0.0/8; the '~' in a key becomes %7E. Of a key or value above
// maxText bytes the name has the beginning and the SHA-256 of all of it, as
// [backends.ShortKey] has. AppendID does not allocate when dst has room, but for such texts.
func AppendID(dst []byte, domain string, entries []Entry, shared []Entry) []byte {
	dst = appendEscaped(dst, domain, inValue)
	for i := range entries {
		e := &entries[i]
		if len(e.Key)|len(e.Value) > maxText {
			e = &Entry{backends.ShortKey(e.Key, maxText), backends.ShortKey(e.Value, maxText)}
		}
		dst = appendEscaped(append(dst, '|'), e.Key, inKey)
		switch pattern := PatternOf(shared, i); {
		case pattern.Key == LeftOut:
		case pattern.Key == Matched:
			dst = append(append(dst, '~'), pattern.Value...)
		case pattern.Key == Masked && e.Value != "":
			dst = append(dst, '=')
			if network, ok := maskOf(pattern).network(e.Value); ok {
				dst = network.AppendTo(dst)
			} else {
				dst = appendEscaped(dst, e.Value, inValue)
			}
		case pattern.Key == Masked:
		case pattern.Key != "":
			dst = appendEscaped(append(dst, '='), pattern.Key, inValue|star)
			dst = appendEscaped(append(dst, "%3D"...), pattern.Value, inValue|star)
		case pattern.Value != "":
			dst = appendEscaped(append(dst, '='), pattern.Value, inValue|star)
		case e.Value != "":
			dst = appendEscaped(append(dst, '='), e.Value, inValue)
		}
	}
	return dst
}

// maxText is the longest key or value, in bytes, that is whole in names. It is the same in every
// process, so that all of them count a long text in one cell.
const maxText = 1024

// PatternOf is the pattern that replaces the value of entry i in the names of [AppendID]; the
// zero Entry if values do not share a counter there.
func PatternOf(shared []Entry, i int) Entry {
	if i < len(shared) {
		return shared[i]
	}
	return Entry{}
}

// ParseID is the inverse of AppendID: the domain and the entries of an id. An entry that
// was replaced by a pattern has the pattern as its value, and if the wildcard is in
// the key, key=value of the pattern; of a match the value is ~ and its text. A long key or
// value is as the name has it. ok is false if AppendID never makes such a name.
func ParseID(id string) (domain string, entries []Entry, ok bool) {
	name, rest, more := strings.Cut(id, "|")
	if domain, ok = unescape(name); !ok {
		return "", nil, false
	}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, "|")
		key, value, _ := strings.Cut(part, "=")
		if i := strings.IndexByte(key, '~'); i >= 0 {
			key, value = part[:i], part[i:]
		}
		var e Entry
		if e.Key, ok = unescape(key); ok {
			e.Value, ok = unescape(value)
		}
		if !ok {
			return "", nil, false
		}
		entries = append(entries, e)
	}
	return domain, entries, true
}

// unescape is the inverse of appendEscaped.
func unescape(s string) (string, bool) {
	s, err := url.PathUnescape(s)
	return s, err == nil
}

// AppendRatelimitID appends the name that envoyproxy/ratelimit gives to the
// caller, domain_key_value_, so that both programs use the same counters.
// Nothing is escaped, so different callers may have the same name.
func AppendRatelimitID(dst []byte, domain string, entries []Entry, shared []Entry) []byte {
	dst = append(append(dst, domain...), '_')
	for i, e := range entries {
		dst = append(dst, e.Key...)
		switch pattern, named := PatternOf(shared, i), Named(shared, i, e); {
		case pattern.Key == Matched:
			dst = append(append(dst, named.Value...), '_')
		case pattern.Key == LeftOut:
			dst = append(dst, '_')
		case pattern.Key == "" || pattern.Key == Masked:
			dst = append(append(dst, '_'), named.Value...)
		default:
			dst = append(append(dst, '_'), pattern.String()...)
		}
		dst = append(dst, '_')
	}
	return dst
}

// Named is the entry i of a request as people are told it where names have it with shared: with
// the pattern, the text of the match with ~ before it, or the network in the place of the value.
func Named(shared []Entry, i int, e Entry) Entry {
	switch pattern := PatternOf(shared, i); {
	case pattern == Entry{}:
	case pattern.Key == Matched:
		text, _ := unescape(pattern.Value)
		e.Value = "~" + text
	case pattern.Key == Masked:
		e.Value = maskOf(pattern).Of(e.Value)
	default:
		e.Value = pattern.Value
	}
	return e
}

// appendEscaped appends s; the bytes stay that have one of the classes.
func appendEscaped(dst []byte, s string, classes class) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		if classOf[c]&classes != 0 {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', hex[c>>4], hex[c&15])
	}
	return dst
}

// matchID is the text of a match in names. It tells "a+1" from "a" and one more.
func matchID(m *match.Match) string {
	id := string(appendEscaped([]byte(m.Name+":"), m.First, inValue))
	if m.Several() {
		id = strings.ReplaceAll(id, "+", "%2B")
	}
	if m.More > 0 {
		id += "+" + strconv.Itoa(m.More)
	}
	return id
}

// class is a class of bytes in names.
type class uint8

const (
	// plain bytes stand for themselves everywhere: printable ASCII without the separators and
	// the escape of names, the '*' of patterns, the '~' of matches, and the braces, which mark
	// the hash tag of a Redis Cluster's key.
	plain class = 1 << iota
	tilde
	star

	inKey   = plain
	inValue = plain | tilde
)

var classOf = func() (of [256]class) {
	for c := '!'; c < 0x7f; c++ {
		switch c {
		case '%', '|', '=', '{', '}':
		case '~':
			of[c] = tilde
		case '*':
			of[c] = star
		default:
			of[c] = plain
		}
	}
	return of
}()

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

// Masks are the masks of the rule's descriptors, from the outermost.
func (r *Rule) Masks() (masks []Mask) {
	for _, e := range r.Shared {
		if e.Key == Masked {
			masks = append(masks, maskOf(e))
		}
	}
	return masks
}

// maskedAddress is an address of a network that Mask.Of returned; other texts stay.
func maskedAddress(text string) string {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.Addr().String()
	}
	return text
}
