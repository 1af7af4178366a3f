package redis

import (
	"strings"

	"example.org/rls/pkg/backends"
)

// maxKey is the length in bytes above which keys are shortened, so that long
// values of callers do not cost memory and traffic of Redis.
const maxKey = 512

// StoredKey is the name under which Redis keeps the cell key: the key itself,
// or a backends.TextKey if it is long. Whether a key is long does not depend on
// trailing digits, in which the keys of adjacent windows differ.
func StoredKey(key string) string {
	const bucketDigits = 20
	long := len(key) > maxKey+bucketDigits || len(strings.TrimRight(key, "0123456789")) > maxKey
	if !long && !backends.IsTextKey(key) {
		return key
	}
	return backends.TextKey(key)
}

// slotOf is the Redis Cluster slot of a key, 0 to 16383: CRC-16/XMODEM of its
// hash tag modulo 16384.
func slotOf(key string) uint16 {
	var crc uint16
	tag := backends.HashTag(key)
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
