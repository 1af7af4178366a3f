package backends

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// ShortKey is key if it has at most maxLen bytes (>= 32), else a name of maxLen + 1
// bytes: a head of the key and its SHA-256. Different keys get different names,
// and long values of callers do not take more memory. The name may have bytes
// that are not printable; a name of TextKey has none.
func ShortKey(key string, maxLen int) string {
	if len(key) <= maxLen {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxLen+1-len(sum)] + string(sum[:])
}

const (
	// textMark stands between the readable head and the SHA-256 of a key.
	textMark = "~sha256~"
	textTail = len(textMark) + 2*sha256.Size
	textHead = 120
)

// TextKey is a name for key of at most 226 bytes without spaces and control
// characters: a readable head and the SHA-256 of the key. A Redis Cluster hash tag is
// replaced by its SHA-256, so that keys with one tag share a slot. Different keys get
// different names, if a store uses TextKey also for keys for which IsTextKey holds.
func TextKey(key string) string {
	b := make([]byte, 0, textHead+2+sha256.Size+textTail)
	for i := 0; i < len(key) && i < textHead; i++ {
		c := key[i]
		if c <= ' ' || c == 0x7f || c == '{' || c == '}' {
			c = '_'
		}
		b = append(b, c)
	}
	if tag := HashTag(key); tag != key {
		sum := sha256.Sum256([]byte(tag))
		b = append(b, '{')
		b = hex.AppendEncode(b, sum[:sha256.Size/2])
		b = append(b, '}')
	}
	sum := sha256.Sum256([]byte(key))
	return string(hex.AppendEncode(append(b, textMark...), sum[:]))
}

// IsTextKey reports whether key looks like a name that TextKey made.
func IsTextKey(key string) bool {
	at := len(key) - textTail
	return at >= 0 && key[at:at+len(textMark)] == textMark
}

// IsShortened reports whether a key of printable ASCII was shortened: key is a name of TextKey or of ShortKey.
func IsShortened(key string) bool {
	return IsTextKey(key) || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })
}

// HashTag is the part of a key that decides its slot in a Redis Cluster: the
// text between the first { and the next }, if there is any, else the whole key
// (Redis Cluster specification, "Hash tags").
func HashTag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			return key[open+1 : open+1+length]
		}
	}
	return key
}

// KeyHash names key in messages: the first 16 hexadecimal digits of its
// SHA-256. The key itself may hold values that identify customers.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
