package descriptors

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"example.org/rls/pkg/descriptors/match"
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

// Pair is the entry as people write it in arguments: key=value, or key. Of a descriptor with a
// match (see [Descriptor.Written]) it is key~match. Key and value are [Printable].
func (e Entry) Pair() string {
	e = Entry{Printable(e.Key), Printable(e.Value)}
	if isMatch(e.Value) {
		return e.Key + e.Value
	}
	return e.join("=")
}

// ParsePair is the inverse of [Entry.Pair] for texts that are UTF-8: key=value, key, or key~match.
func ParsePair(text string) Entry {
	key, value, _ := strings.Cut(text, "=")
	if i := strings.IndexByte(key, '~'); i >= 0 && isMatch(text[i:]) {
		key, value = text[:i], text[i:]
	}
	return Entry{key, value}
}

// Pairs are the entries as people write them in arguments: key=value,key=value. A reader
// cannot tell a comma or = in a key or value from those between them, nor a text that is not UTF-8
// from its [Printable].
func Pairs(entries []Entry) string {
	pairs := make([]string, len(entries))
	for i, e := range entries {
		pairs[i] = e.Pair()
	}
	return strings.Join(pairs, ",")
}

// Argument is the text of entries that commands take: [Pairs], or where a reader could not
// tell the pairs apart, a list in JSON.
func Argument(entries []Entry) string {
	ambiguous := func(e Entry) bool {
		return ParsePair(e.Pair()) != e || strings.ContainsAny(e.Key, ",{[") || strings.Contains(e.Value, ",") || strings.TrimSpace(e.Key) != e.Key
	}
	if !slices.ContainsFunc(entries, ambiguous) {
		return Pairs(entries)
	}
	list, _ := json.Marshal(entries) // of texts
	return string(list)
}

// isMatch reports whether a value is that of a match, as [Descriptor.Written] has it.
func isMatch(value string) bool {
	text, found := strings.CutPrefix(value, "~")
	return found && match.IsText(text)
}

// MaxShortened is the most entries that AppendShortened appends.
const MaxShortened = 8

// AppendShortened appends the first entries to dst, whose keys and values have together at
// most max bytes and 3 for each of them. Keys and values that are cut end with …, and so does
// the last value if entries are left out. It allocates only for texts that it cuts.
func AppendShortened(dst, entries []Entry, max int) []Entry {
	kept := min(len(entries), MaxShortened)
	for i, e := range entries[:kept] {
		half := max / (kept - i) / 2
		e = Entry{Shortened(e.Key, half), Shortened(e.Value, 2*half-min(half, len(e.Key)))}
		max -= len(e.Key) + len(e.Value)
		dst = append(dst, e)
	}
	if kept < len(entries) {
		last := &dst[len(dst)-1]
		last.Value = strings.TrimSuffix(last.Value, cut) + cut
	}
	return dst
}

// cut ends a text of which bytes were left out.
const cut = "…"

// Shortened is at most the first n bytes of s, and … if that is not all of s. It cuts no character
// in two, and keeps bytes that are not UTF-8.
func Shortened(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(0, n)
	for i := n - 1; i >= max(0, n-utf8.UTFMax+1); i-- {
		if _, size := utf8.DecodeRuneInString(s[i:]); i+size > n {
			n = i
		}
	}
	return s[:n] + cut
}
