package service

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"

	"example.org/rls/pkg/descriptors"
)

// hashBytes is the number of bytes of an HMAC-SHA-256 that stand for a value. With
// 128 bits two values are likely to share a counter only among some 10^19 values.
const hashBytes = 16

// valueHash puts a keyed hash in place of each value of a descriptor, so that
// the values cannot be read from the keys in the store. The same value has the same
// hash in every process that has the same secret. It is safe for concurrent use.
type valueHash struct{ hashers sync.Pool }

// hasher is the state of one HMAC and the room that it works in.
type hasher struct {
	hash    hash.Hash
	value   []byte
	sum     [sha256.Size]byte
	text    []byte
	entries []descriptors.Entry
}

func newValueHash(secret []byte) *valueHash {
	return &valueHash{sync.Pool{New: func() any { return &hasher{hash: hmac.New(sha256.New, secret)} }}}
}

// appendID is descriptors.AppendID with the hash of each value, in hexadecimal,
// in place of the value. An empty value stays empty.
func (v *valueHash) appendID(dst []byte, domain string, entries []descriptors.Entry, shared []descriptors.Entry) []byte {
	h := v.hashers.Get().(*hasher)
	defer v.hashers.Put(h)
	h.text, h.entries = h.text[:0], append(h.entries[:0], entries...)
	defer func() { clear(h.entries) }()
	for _, e := range entries {
		if e.Value != "" {
			h.hash.Reset()
			h.value = append(h.value[:0], e.Value...)
			h.hash.Write(h.value)
			h.text = hex.AppendEncode(h.text, h.hash.Sum(h.sum[:0])[:hashBytes])
		}
	}
	text := string(h.text)
	for i := range h.entries {
		if h.entries[i].Value != "" {
			h.entries[i].Value, text = text[:2*hashBytes], text[2*hashBytes:]
		}
	}
	return descriptors.AppendID(dst, domain, h.entries, shared)
}
