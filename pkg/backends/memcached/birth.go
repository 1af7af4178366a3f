package memcached

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
)

// births saves the round trip in which the first hit of a window learns that its
// counter does not exist. A charge of a counter that this process has not charged
// lately goes with an `add` of 0 before it, in the same packet:
//
//	add key 0 exptime 1 noreply
//	0
//	incr key cost
//
// A counter of 0 means the same as none, so it does not matter whether the counter
// existed, nor which of several charges creates it.
type births struct {
	known  [1 << 14]atomic.Uint32 // parts of the hashes of keys that were charged lately
	coming sync.Map               // key to exptime, of charges that are about to be sent
}

// of returns the slot of a key and the content of the slot if the key was charged
// lately. Few keys share both.
func (b *births) of(key string) (*atomic.Uint32, uint32) {
	h := mix(hash(key))
	return &b.known[h%uint64(len(b.known))], uint32(h>>32) | 1
}

// expect has the next charge of key create the counter, unless the key was charged
// lately. The caller calls charged when the charge has ended.
func (b *births) expect(key string, expiration func() int32) {
	if slot, mark := b.of(key); slot.Load() != mark {
		b.coming.Store(key, expiration())
	}
}

// charged ends what expect has begun. exists says whether the counter exists now.
func (b *births) charged(key string, exists bool) {
	slot, mark := b.of(key)
	if slot.Load() == mark {
		if !exists {
			slot.Store(0)
		}
		return
	}
	b.coming.Delete(key)
	if exists {
		slot.Store(mark)
	}
}

// before returns the command that goes before a request, if any.
func (b *births) before(request []byte) []byte {
	rest, charges := bytes.CutPrefix(request, []byte("incr "))
	if !charges {
		return nil
	}
	key, _, _ := bytes.Cut(rest, []byte(" "))
	exptime, coming := b.coming.Load(string(key))
	if !coming {
		return nil
	}
	return fmt.Appendf(nil, "add %s 0 %d 1 noreply\r\n0\r\n", key, exptime)
}
