package memory

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"

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

// portion is about the number of bytes that Save encodes while it holds a shard's lock.
const portion = 64 << 10

// Save writes the cells and reservations that have not ended, as Load reads them. It holds the
// lock of a shard for at most a millisecond or the time of one log, and takes as little memory. A
// cell is as it is when Save comes to it, so a cell and a reservation on it may be of different
// moments.
func (s *Store) Save(w io.Writer) error {
	var buffer []byte
	for i := range s.shards {
		sh := &s.shards[i]
		for slot, more := 0, true; more; more = slot > 0 {
			buffer = buffer[:0]
			slot = sh.live(slot, s.now(), func(slot uint32) bool {
				buffer = sh.appendCell(buffer, slot)
				return len(buffer) < portion
			})
			if len(buffer) == 0 {
				continue
			}
			if _, err := w.Write(buffer); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendCell appends a cell or the record of a reservation: its key behind its length, the cell, and what
// an open reservation has beside it.
func (sh *shard) appendCell(b []byte, slot uint32) []byte {
	key := sh.table.keyOf(sh.table.at(slot))
	var s backends.State
	sh.read(slot, backends.Meter, &s) // whatever it is
	s.Log, s.Prev, s.Base = sh.logs[slot], sh.prevs[slot], sh.bases[slot]
	b = append(backends.AppendNumbers(b, int64(len(key))), key...)
	return backends.AppendNumbers(s.Append(b), sh.held[slot].mark, sh.held[slot].number)
}

// Load adds the cells and reservations that Save has written. It leaves out cells that have ended and
// cells that the store has by now. If the store has too little room it keeps the cells that end last.
// It fails if r does not hold cells as Save writes them, and keeps the cells before the error.
func (s *Store) Load(r io.Reader) error {
	from := bufio.NewReader(r)
	numbers := &backends.Numbers{ByteReader: from}
	for {
		if _, err := from.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		key := make([]byte, min(numbers.Natural(), longestKey+1))
		if _, err := io.ReadFull(from, key); numbers.Err == nil {
			numbers.Err = err
		}
		cell, of := numbers.State(), held{numbers.Next(), numbers.Next()}
		if numbers.Err != nil {
			return numbers.Err
		}
		n := name{string(key), maphash.Bytes(s.seed, key)}
		s.shards[s.shardOf(n)].add(n, &cell, of, s.now())
	}
}

// add makes a cell, unless it has ended, or the shard has the cell by now, or has room only for cells
// that end later.
func (sh *shard) add(n name, s *backends.State, of held, now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	_, soonest, _ := sh.soonest()
	until := s.Ends()
	if _, ok := sh.table.find(n); ok || until <= now || sh.table.len >= sh.max && until <= soonest {
		return
	}
	if slot, _ := sh.write(n, 0, false, s, now); of.number != 0 {
		sh.held[slot] = of
	}
}
