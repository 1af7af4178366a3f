package match

import (
	"unicode"
	"unicode/utf8"
)

// foldRoom is the number of bytes up to which a value is folded without allocating.
const foldRoom = 512

// appendFolded appends s with one letter in place of all letters that differ only in case, by
// Unicode's simple folding; of the letters of ASCII it is the lower-case one.
func appendFolded(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError { // also an invalid byte, which stays as it is
			dst = append(dst, s[i:i+size]...)
			i += size
			continue
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		dst = utf8.AppendRune(dst, least)
		i += size
	}
	return dst
}

// foldText is s with one letter in place of all letters that differ only in case.
func foldText(s string) string { return string(appendFolded(nil, s)) }
