package lease

import "example.org/rls/pkg/backends"

// sketch finds the keys with many operations among any number of keys, in a
// fixed memory. Keys that share a slot take hits off each other, so that the
// more frequent one keeps the slot.
type sketch [64]slot

type slot struct {
	key   uint32 // a part of the key's hash
	count int32  // operations since the time below
	since int64  // µs
}

// hit notes an operation on the key with that hash, and reports whether the key
// has become hot. The key then leaves the sketch.
func (s *sketch) hit(hash uint32, op *backends.Op) bool {
	c := &s[hash%uint32(len(s))]
	if age := op.Now - c.since; c.count == 0 || age >= op.Lease.TTL || age < 0 {
		*c = slot{hash, 1, op.Now}
		return false
	}
	if c.key != hash {
		c.count--
		return false
	}
	if c.count++; c.count < hot {
		return false
	}
	*c = slot{}
	return true
}
