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

// scanned is the most cells that Page looks at, because it holds a shard's lock.
const scanned = 1024

// Scan implements backends.Scanner. It leaves out cells that have ended.
func (s *Store) Scan(ctx context.Context, prefix string, each func(keys []string) error) error {
	for from := ""; ; {
		keys, next, err := s.Page(ctx, prefix, from, scanned)
		if err == nil && len(keys) > 0 {
			err = each(keys)
		}
		if from = next; err != nil || from == "" {
			return err
		}
	}
}

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
	keys, slot = s.shards[shard].keys([]byte(prefix), slot, n, s.now())
	if slot == 0 {
		shard++
	}
	if shard < len(s.shards) {
		next = fmt.Sprintf(form, store, shard, slot)
	}
	return keys, next, nil
}

// keys are the keys with the prefix, at most n, of the cells in the next slots that have not ended by
// now. next is the slot behind them, 0 behind the last one.
func (sh *shard) keys(prefix []byte, from, n int, now int64) (keys []string, next int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slots, slot := len(sh.table.chunks)*cellsPerChunk, from
	for ; slot < min(from+scanned, slots) && len(keys) < n; slot++ {
		if !sh.live(uint32(slot), now) {
			continue
		}
		if key := sh.table.keyOf(sh.table.at(uint32(slot))); bytes.HasPrefix(key, prefix) {
			keys = append(keys, string(key))
		}
	}
	if slot >= slots {
		return keys, 0
	}
	return keys, slot
}

// live reports whether the slot has a cell that has not ended by now.
func (sh *shard) live(slot uint32, now int64) bool {
	e := sh.table.at(slot)
	return int(e.expiry) < len(sh.heap) && sh.heap[e.expiry].slot == slot && e.until > now
}
