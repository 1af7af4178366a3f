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

// ValueHash puts a keyed hash in place of each value of a descriptor, so that
// the values cannot be read from the keys in the store. The same value has the same
// hash in every process that has the same secret. It is safe for concurrent use.
type ValueHash struct{ hashers sync.Pool }

// hasher is the state of one HMAC and the room that it works in.
type hasher struct {
	hash    hash.Hash
	value   []byte
	sum     [sha256.Size]byte
	text    []byte
	entries []descriptors.Entry
}

// NewValueHash returns the hash of a secret; nil without one.
func NewValueHash(secret []byte) *ValueHash {
	if len(secret) == 0 {
		return nil
	}
	return &ValueHash{sync.Pool{New: func() any { return &hasher{hash: hmac.New(sha256.New, secret)} }}}
}

// appendID is descriptors.AppendID with the hash of each value, in hexadecimal,
// in place of the value. An empty value stays empty.
func (v *ValueHash) appendID(dst []byte, domain string, entries []descriptors.Entry, shared []descriptors.Naming) []byte {
	h := v.hashers.Get().(*hasher)
	defer v.hashers.Put(h)
	h.text, h.entries = h.text[:0], append(h.entries[:0], entries...)
	defer func() { clear(h.entries) }()
	for i, e := range entries {
		if e.Value == "" {
			continue
		}
		h.append(descriptors.NamingOf(shared, i).Mask.Of(e.Value))
	}
	text := string(h.text)
	for i := range h.entries {
		if h.entries[i].Value != "" {
			h.entries[i].Value, text = text[:2*hashBytes], text[2*hashBytes:]
		}
	}
	return descriptors.AppendID(dst, domain, h.entries, shared)
}

// append appends the hash of a value, in hexadecimal, to h.text.
func (h *hasher) append(value string) {
	h.hash.Reset()
	h.value = append(h.value[:0], value...)
	h.hash.Write(h.value)
	h.text = hex.AppendEncode(h.text, h.hash.Sum(h.sum[:0])[:hashBytes])
}

// Hash is the hash that stands for a value in keys. That of an empty value is empty.
func (v *ValueHash) Hash(value string) string {
	if value == "" {
		return ""
	}
	h := v.hashers.Get().(*hasher)
	defer v.hashers.Put(h)
	h.text = h.text[:0]
	h.append(value)
	return string(h.text)
}
