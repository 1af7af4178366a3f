package descriptors

import (
	"net/url"
	"strings"
)

// LeftOut is the Key of an element of [Rule.Shared] whose entry is in names without its value:
// the value is the id of a reservation.
const LeftOut = "\x00"

// AppendID appends the readable name of the caller that a limit counts to dst,
// as in bench|user=v0-12, and returns the result. Different domains, entries or
// shared never give the same name: every byte that could break a store's key or
// that separates the parts of a name is written as %XX.
//
// shared is [Rule.Shared]: a pattern shared[i] replaces the value of entries[i].
// The '*' in it stay; the '*' in a value become %2A. AppendID does not allocate
// when dst has room.
func AppendID(dst []byte, domain string, entries []Entry, shared []Entry) []byte {
	dst = appendEscaped(dst, domain, false)
	for i, e := range entries {
		dst = appendEscaped(append(dst, '|'), e.Key, false)
		switch pattern := PatternOf(shared, i); {
		case pattern.Key == LeftOut:
		case pattern.Key != "":
			dst = appendEscaped(append(dst, '='), pattern.Key, true)
			dst = appendEscaped(append(dst, "%3D"...), pattern.Value, true)
		case pattern.Value != "":
			dst = appendEscaped(append(dst, '='), pattern.Value, true)
		case e.Value != "":
			dst = appendEscaped(append(dst, '='), e.Value, false)
		}
	}
	return dst
}

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
// the key, key=value of the pattern. ok is false if AppendID never makes such a name.
func ParseID(id string) (domain string, entries []Entry, ok bool) {
	name, rest, more := strings.Cut(id, "|")
	if domain, ok = unescape(name); !ok {
		return "", nil, false
	}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, "|")
		key, value, _ := strings.Cut(part, "=")
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
		value := e.Value
		if pattern := PatternOf(shared, i); pattern.Key == LeftOut {
			value = ""
		} else if pattern.Key != "" {
			value = pattern.String()
		} else if pattern.Value != "" {
			value = pattern.Value
		}
		dst = append(append(dst, e.Key...), '_')
		dst = append(append(dst, value...), '_')
	}
	return dst
}

func appendEscaped(dst []byte, s string, pattern bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		if safe(c) || c == '*' && pattern {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', hex[c>>4], hex[c&15])
	}
	return dst
}

// safe reports whether c stands for itself in a name: printable ASCII without
// the separators and the escape of names, the '*' of patterns, and the braces,
// which mark the hash tag of a Redis Cluster's key.
func safe(c byte) bool {
	switch c {
	case '%', '|', '=', '{', '}', '*':
		return false
	}
	return c > ' ' && c < 0x7f
}
