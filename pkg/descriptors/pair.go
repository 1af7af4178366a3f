package descriptors

import (
	"encoding/json"
	"slices"
	"strings"

	"example.org/rls/pkg/descriptors/match"
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
