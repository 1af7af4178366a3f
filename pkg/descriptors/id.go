package descriptors

import (
	"net/url"
	"strconv"
	"strings"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors/match"
)

// AppendID appends the readable name of the caller that a limit counts to dst,
// as in bench|user=v0-12, and returns the result. Different domains, entries or
// shared never give the same name: every byte that could break a store's key or
// that separates the parts of a name is written as %XX.
//
// shared is [Rule.Shared]: shared[i] says what stands in the place of the value of entries[i].
// The '*' of a pattern stay; the '*' in a value become %2A. The text of a match stands for
// key and value: ip~cidr:10.0.0.0/8; the '~' in a key becomes %7E. Of a key or value above
// maxText bytes the name has the beginning and the SHA-256 of all of it, as
// [backends.ShortKey] has. AppendID does not allocate when dst has room, but for such texts.
func AppendID(dst []byte, domain string, entries []Entry, shared []Naming) []byte {
	dst = appendEscaped(dst, domain, inValue)
	for i := range entries {
		e := &entries[i]
		if len(e.Key)|len(e.Value) > maxText {
			e = &Entry{backends.ShortKey(e.Key, maxText), backends.ShortKey(e.Value, maxText)}
		}
		dst = appendEscaped(append(dst, '|'), e.Key, inKey)
		if i < len(shared) && shared[i] != (Naming{}) {
			dst = shared[i].append(dst, e.Value)
		} else if e.Value != "" {
			dst = appendEscaped(append(dst, '='), e.Value, inValue)
		}
	}
	return dst
}

// maxText is the longest key or value, in bytes, that is whole in names. It is the same in every
// process, so that all of them count a long text in one cell.
const maxText = 1024

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
func AppendRatelimitID(dst []byte, domain string, entries []Entry, shared []Naming) []byte {
	dst = append(append(dst, domain...), '_')
	for i, e := range entries {
		dst = append(dst, e.Key...)
		switch n, named := NamingOf(shared, i), Named(shared, i, e); {
		case n.LeftOut:
			dst = append(dst, '_')
		case n.Match != "":
			dst = append(append(dst, named.Value...), '_')
		case n.Pattern.Key != "":
			dst = append(append(dst, '_'), n.Pattern.String()...)
		default:
			dst = append(append(dst, '_'), named.Value...)
		}
		dst = append(dst, '_')
	}
	return dst
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
