package redis

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxKey is the length in bytes above which keys are hashed, so that
	// neither Redis' memory nor the wire is at the mercy of long values.
	maxKey = 512
	// hashMark stands between the readable head and the SHA-256 of a key.
	hashMark   = "~sha256~"
	hashedTail = len(hashMark) + 2*sha256.Size
	headLen    = 120
)

// storedKey is the name under which Redis keeps the cell key: the key itself,
// or when it is long a readable head and a hash of the whole. It is injective
// as far as SHA-256 is (a short key that looks hashed is hashed too).
//
// A Cluster hash tag in a long key is replaced by its own hash, so that keys
// with the same tag still share a slot. Whether a key is long does not depend
// on trailing digits, in which the keys of adjacent windows differ.
func storedKey(key string) string {
	const bucketDigits = 20
	long := len(key) > maxKey+bucketDigits || len(strings.TrimRight(key, "0123456789")) > maxKey
	if !long && !looksHashed(key) {
		return key
	}
	return hashedKey(key)
}

func hashedKey(key string) string {
	b := make([]byte, 0, headLen+2+sha256.Size+hashedTail)
	for i := 0; i < len(key) && i < headLen; i++ {
		c := key[i]
		if c == '{' || c == '}' {
			c = '_'
		}
		b = append(b, c)
	}
	if tag := hashTag(key); tag != key {
		sum := sha256.Sum256([]byte(tag))
		b = append(b, '{')
		b = hex.AppendEncode(b, sum[:sha256.Size/2])
		b = append(b, '}')
	}
	sum := sha256.Sum256([]byte(key))
	return string(hex.AppendEncode(append(b, hashMark...), sum[:]))
}

func looksHashed(key string) bool {
	at := len(key) - hashedTail
	return at >= 0 && key[at:at+len(hashMark)] == hashMark
}

// hashTag is the part of a key that decides its slot: what is between the
// first { and the next }, if that is anything, else the whole key.
// (Redis Cluster specification, "Hash tags".)
func hashTag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			return key[open+1 : open+1+length]
		}
	}
	return key
}

// slotOf is the Redis Cluster slot of a key, 0 to 16383: CRC-16/XMODEM of its
// hash tag modulo 16384.
func slotOf(key string) uint16 {
	var crc uint16
	tag := hashTag(key)
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return crc % 16384
}

var crcTable = func() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}()
