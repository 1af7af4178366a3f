package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"

	"example.org/rls/pkg/backends"
)

var _ backends.Scanner = (*Store)(nil)

// scanned is the most slots that Page and Save look at while they hold a shard's lock.
const scanned = 1024

// Page implements backends.Scanner, and returns at most n keys. A position is the next slot of a shard:
// a cell stays in its slot.
func (s *Store) Page(ctx context.Context, prefix, from string, n int) (keys []string, next string, err error) {
	if err := cmp.Or(s.closedErr(), ctx.Err()); err != nil {
		return nil, "", err
	}
	const form = "%x:%d:%d"
	var of uint64
	var shard, slot int
	store := maphash.String(s.seed, "")
	_, wrong := fmt.Sscanf(from, form, &of, &shard, &slot)
	if from != "" && (wrong != nil || of != store || shard < 0 || shard >= len(s.shards) || slot < 0) {
		return nil, "", fmt.Errorf("memory: %w", backends.ErrMoved)
	}
	sh, head := &s.shards[shard], []byte(prefix)
	slot = sh.live(slot, s.now(), func(slot uint32) bool {
		if key := sh.table.keyOf(sh.table.at(slot)); bytes.HasPrefix(key, head) {
			keys = append(keys, string(key))
		}
		return len(keys) < n
	})
	if slot == 0 {
		shard++
	}
	if shard < len(s.shards) {
		next = fmt.Sprintf(form, store, shard, slot)
	}
	return keys, next, nil
}

// live calls with for the slots from one on, scanned ones at most, whose cells have not ended by now, until
// it returns false. next is the slot behind the last one, 0 behind the last slot of all.
func (sh *shard) live(from int, now int64, with func(slot uint32) bool) (next int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slots := len(sh.table.chunks) * cellsPerChunk
	for next = from; next < min(from+scanned, slots); next++ {
		e := sh.table.at(uint32(next))
		used := int(e.expiry) < len(sh.heap) && sh.heap[e.expiry].slot == uint32(next)
		if used && e.until > now && !with(uint32(next)) {
			next++
			break
		}
	}
	if next >= slots {
		return 0
	}
	return next
}
