package memory

import (
	"bytes"
	"context"

	"example.org/rls/pkg/backends"
)

var _ backends.Scanner = (*Store)(nil)

// scanned is the number of cells that Scan looks at while it holds a shard's lock.
const scanned = 1024

// Scan implements backends.Scanner. It leaves out cells that have ended.
func (s *Store) Scan(ctx context.Context, prefix string, each func(keys []string) error) error {
	for i := range s.shards {
		for from, more := 0, true; more; from += scanned {
			if err := s.closedErr(); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			var keys []string
			keys, more = s.shards[i].keys([]byte(prefix), from, s.now())
			if len(keys) == 0 {
				continue
			}
			if err := each(keys); err != nil {
				return err
			}
		}
	}
	return nil
}

// keys are the keys with the prefix of the cells in the next slots that have not
// ended by now. more reports whether slots are left.
func (sh *shard) keys(prefix []byte, from int, now int64) (keys []string, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slots := len(sh.table.chunks) * cellsPerChunk
	for slot := from; slot < min(from+scanned, slots); slot++ {
		if !sh.live(uint32(slot), now) {
			continue
		}
		if key := sh.table.keyOf(sh.table.at(uint32(slot))); bytes.HasPrefix(key, prefix) {
			keys = append(keys, string(key))
		}
	}
	return keys, from+scanned < slots
}

// live reports whether the slot has a cell that has not ended by now.
func (sh *shard) live(slot uint32, now int64) bool {
	e := sh.table.at(slot)
	return int(e.expiry) < len(sh.heap) && sh.heap[e.expiry].slot == slot && e.until > now
}
