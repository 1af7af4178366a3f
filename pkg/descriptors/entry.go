package descriptors

import (
	"strings"
)

// Entry is one key and value of a descriptor, of any bytes. An absent value is "".
type Entry struct{ Key, Value string }

// Contains reports whether text is a part of the key or of the value, or of their [Printable].
func (e Entry) Contains(text string) bool {
	return contains(e.Key, text) || contains(e.Value, text)
}

// Is reports whether text is the whole value, or its [Printable].
func (e Entry) Is(text string) bool { return e.Value == text || Printable(e.Value) == text }

func contains(s, text string) bool {
	return strings.Contains(s, text) || strings.Contains(Printable(s), text)
}

// String is the entry as envoyproxy/ratelimit writes it: key_value, or key.
func (e Entry) String() string { return e.join("_") }

func (e Entry) join(separator string) string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + separator + e.Value
}

// By is the way in which a descriptor of the rules matches an entry: one of these, or the
// name of a kind of match, such as cidr.
type By string

// The ways without match. Nothing says that none matched.
const (
	Exact    By = "exact"    // the entry's key and value
	Wildcard By = "wildcard" // a '*' in key or value
	Key      By = "key"      // the entry's key, and no value
	Nothing  By = "none"
)
