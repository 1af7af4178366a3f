package descriptors

import (
	"strings"
	"unicode/utf8"
)

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
