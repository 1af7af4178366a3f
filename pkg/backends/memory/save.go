package memory

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"io"

	"example.org/rls/pkg/backends"
)

// portion is about the number of bytes that Save encodes while it holds a shard's lock.
const portion = 64 << 10

// Save writes the cells and reservations that have not ended, as Load reads them. It holds the
// lock of a shard for at most a millisecond or the time of one log, and takes as little memory. A
// cell is as it is when Save comes to it, so a cell and a reservation on it may be of different
// moments.
func (s *Store) Save(w io.Writer) error {
	var buffer []byte
	for i := range s.shards {
		for slot := 0; slot >= 0; {
			buffer, slot = s.shards[i].encode(buffer[:0], slot, s.now())
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

// encode appends the cells of the next slots, and returns the first slot that it has not looked at; -1
// if there is none.
func (sh *shard) encode(b []byte, from int, now int64) (after []byte, next int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	slots := len(sh.table.chunks) * cellsPerChunk
	for slot := from; slot < slots; slot++ {
		if slot == from+scanned || len(b) >= portion {
			return b, slot
		}
		if sh.live(uint32(slot), now) {
			b = sh.appendCell(b, uint32(slot))
		}
	}
	return b, -1
}

// appendCell appends a cell or the record of a reservation: its key behind its length, and numbers
// as varints. Counts are one more than what follows, and 0 if the cell has no log, or no open
// reservations, or is no open reservation.
func (sh *shard) appendCell(b []byte, slot uint32) []byte {
	e := sh.table.at(slot)
	key := sh.table.keyOf(e)
	log, isList := sh.logs[slot]
	open, isOpen := sh.opens[slot]
	held, isHeld := sh.held[slot]
	b = append(binary.AppendVarint(b, int64(len(key))), key...)
	b = appendNumbers(b, e.whole, e.until, int64(e.frac), sh.prevs[slot], sh.bases[slot])
	b = appendNumbers(b, count(isList, len(log)), count(isOpen, len(open.Back)), count(isHeld, 0))
	for _, c := range log {
		b = appendNumbers(b, c.At, c.Hits, c.Number)
	}
	if isOpen {
		b = appendNumbers(b, open.Number, open.Stays, open.until)
	}
	for _, rec := range open.Back {
		b = appendNumbers(b, rec.Ends, rec.Mark, rec.By.Whole, rec.By.Frac)
	}
	if isHeld {
		b = appendNumbers(b, held.mark, held.number)
	}
	return b
}

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func count(is bool, n int) int64 {
	if !is {
		return 0
	}
	return int64(n) + 1
}

// Load adds the cells and reservations that Save has written. It leaves out cells that have ended and
// cells that the store has by now. If the store has too little room it keeps the cells that end last.
// It fails if r does not hold cells as Save writes them, and keeps the cells before the error.
func (s *Store) Load(r io.Reader) error {
	from := &numbers{Reader: bufio.NewReader(r)}
	for {
		if _, err := from.Peek(1); errors.Is(err, io.EOF) {
			return nil
		}
		key := make([]byte, min(max(from.next(), 0), longestKey+1))
		if _, err := io.ReadFull(from, key); from.err == nil {
			from.err = err
		}
		k := from.cell()
		if from.err != nil {
			return from.err
		}
		if now := s.now(); k.until > now {
			n := name{string(key), maphash.Bytes(s.seed, key)}
			s.shards[s.shardOf(n)].add(n, &k, now)
		}
	}
}

// numbers reads numbers as appendNumbers has written them.
type numbers struct {
	*bufio.Reader
	err error // the first one; next is 0 after it
}

func (r *numbers) next() (n int64) {
	if r.err == nil {
		n, r.err = binary.ReadVarint(r)
	}
	return n
}

// kept is a cell as appendCell has written it.
type kept struct {
	cell
	prev int64
	base int64
	log  backends.Log
	open *open
	held *held
}

func (r *numbers) cell() (k kept) {
	k.whole, k.until, k.frac, k.prev, k.base = r.next(), r.next(), uint32(r.next()), r.next(), r.next()
	costs, open, isHeld := r.next(), r.next(), r.next() > 0
	if costs > 0 { // perhaps an empty log with reservations
		k.log = backends.Log{}
	}
	for ; costs > 1 && r.err == nil; costs-- {
		k.log = append(k.log, backends.Cost{At: r.next(), Hits: r.next(), Number: r.next()})
	}
	if open > 0 {
		k.open = r.open(open - 1)
	}
	if isHeld {
		k.held = &held{r.next(), r.next()}
	}
	return k
}

func (r *numbers) open(back int64) *open {
	o := &open{Lapsing: backends.Lapsing{Number: r.next(), Stays: r.next()}, until: r.next()}
	for ; back > 0 && r.err == nil; back-- {
		rec := backends.Record{Ends: r.next(), Mark: r.next()}
		rec.By = backends.Amount{Whole: r.next(), Frac: r.next()}
		o.Back = append(o.Back, rec)
	}
	return o
}

// add makes a cell, unless the shard has the cell by now, or has room only for cells that end later.
func (sh *shard) add(n name, k *kept, now int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	_, until, _ := sh.soonest()
	if _, ok := sh.table.find(n); ok || sh.table.len >= sh.max && k.until <= until {
		return
	}
	slot := sh.insert(n, k.until, now)
	e := sh.table.at(slot)
	e.whole, e.frac = k.whole, k.frac
	if k.prev > 0 {
		sh.prevs[slot] = k.prev
	}
	if k.base > 0 {
		sh.bases[slot] = k.base
	}
	if k.log != nil {
		sh.logs[slot] = k.log
	}
	if k.open != nil {
		sh.opens[slot] = *k.open
	}
	if k.held != nil {
		sh.held[slot] = *k.held
	}
}
