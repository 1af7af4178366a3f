package memcached

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	maxKeyLen = 250 // memcached's KEY_MAX_LENGTH
	// hashMark stands between the readable head and the SHA-256 of a key that
	// memcached would not take as it is.
	hashMark   = "~sha256~"
	hashedTail = len(hashMark) + 2*sha256.Size
	headLen    = 120
)

// safeKey is the name under which memcached stores the cell key: key itself
// where the text protocol can carry it (1 to 250 bytes, no spaces, control
// characters or DEL), else a readable head and a hash of the whole. It is
// injective as far as SHA-256 is: a legal key that looks hashed is hashed too.
func safeKey(key string) string {
	if isLegal(key) && !looksHashed(key) {
		return key
	}
	b := make([]byte, 0, headLen+hashedTail)
	for i := 0; i < len(key) && i < headLen; i++ {
		c := key[i]
		if !isLegalByte(c) {
			c = '_'
		}
		b = append(b, c)
	}
	sum := sha256.Sum256([]byte(key))
	return string(hex.AppendEncode(append(b, hashMark...), sum[:]))
}

func isLegal(key string) bool {
	if len(key) == 0 || len(key) > maxKeyLen {
		return false
	}
	for i := 0; i < len(key); i++ {
		if !isLegalByte(key[i]) {
			return false
		}
	}
	return true
}

func isLegalByte(c byte) bool { return c > ' ' && c != 0x7f }

func looksHashed(key string) bool {
	at := len(key) - hashedTail
	return at >= 0 && key[at:at+len(hashMark)] == hashMark
}
