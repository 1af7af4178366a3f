package memcached

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
)

// hold is a reservation that operations of the batch make or settle. Its record is an item
// beside the cell:
//
//	"5 0 1700000000000 1700000600000 false 0 0"  the Record, with ledger.Reset before Record.At
//
// No step is atomic over two items, so a crash between two writes leaves hits charged. It
// gives none away: the cell is charged before the record is written, and hits go back to the
// cell after that. The ledger is written before the record. Of two writers of a record the
// first one wins; the other takes back what it has charged and begins anew.
type hold struct {
	key        string // in memcached
	ops        []int  // indexes into job.Ops, ascending
	item       *memcache.Item
	found, rec backends.Record // as read, and after the operations
	reset      int64           // of the ledger, as read
	done       []charge
	changed    bool // the record has to be written
	back       bool // its hits go back to the cell
	written    bool
	err        error // of reading
}

// patience is how many rounds a writer waits for another one that is about to settle.
const patience = maxRounds / 4

// charge is what an operation has come to on its cell.
type charge struct {
	op int // index into job.Ops
	on backends.Op
}

// holdOf is the hold of operation i, which is made when the job begins.
func (j *job) holdOf(i int) *hold {
	key := StoredKey(j.Ops[i].Hold.Key + "|" + hex.EncodeToString([]byte(j.Ops[i].Hold.ID)))
	at := slices.IndexFunc(j.holds, func(h *hold) bool { return h.key == key })
	if at < 0 {
		at, j.holds = len(j.holds), append(j.holds, &hold{key: key})
	}
	return j.holds[at]
}

// read has the operations begin at the record as it was found.
func (j *job) read(h *hold) error {
	op := &j.Ops[h.ops[0]]
	l, err := readLedger(op, j.found[StoredKey(op.Hold.Key)])
	if err != nil {
		return err
	}
	h.done, h.changed, h.back = h.done[:0], false, false
	if !h.written {
		var reset int64
		h.item, h.found, h.reset = j.found[h.key], backends.Record{}, l.Reset
		if h.item != nil {
			f := &h.found
			n, _ := fmt.Sscan(string(h.item.Value), &f.By.Whole, &f.By.Frac, &f.Mark, &f.Ends, &f.Settled, &reset, &f.At)
			if n < 6 {
				return foreign(h.key, errNonsense)
			}
		}
		lapsed := h.found.Ends <= op.Now || reset < l.Reset
		if op.Hold.GiveBack && isOpen(h.found) && !l.Open.Has(h.found) {
			// It has come back, by a clock that is ahead, or a writer is about to settle it.
			h.back = h.found.Ends > op.Now+backends.Skew && j.round < patience
			lapsed = lapsed || !h.back
		}
		if lapsed {
			h.found = backends.Record{}
		}
	} else if l.Reset > h.reset { // the hits are forgotten
		h.found.Settled = true
	}
	h.rec = h.found
	return nil
}

// stepOn applies op, which stands for operation i, to its cell.
func (j *job) stepOn(i int, op *backends.Op, r *record) backends.Reply {
	if op.Hold == nil {
		return r.step(op)
	}
	on := *op
	on.Hold = nil
	if !op.Identified() || op.Verb.Operates() {
		return r.step(&on)
	}
	h := j.holdOf(i)
	on, state := h.rec.Against(op)
	reply := r.step(&on)
	after, changed := h.rec.After(op, state, &reply)
	h.rec.Tell(op, state, &on, &reply)
	if changed {
		h.rec, h.changed = after, true
		h.back = h.back || isOpen(h.found) && on.Verb.GivesBack() && on.By != backends.Amount{}
		h.done = append(h.done, charge{i, on})
	}
	return reply
}

// keep writes records whose cells are ready, of hits that go back or of the others, and
// returns those for which another writer was faster.
func (j *job) keep(ctx context.Context, back bool, ready func(*cell) bool) (raced []*hold, err error) {
	var now []*hold
	for _, h := range j.holds {
		if h.changed && !h.written && h.back == back && ready(j.of[h.done[0].op]) {
			now = append(now, h)
		}
	}
	errs := make([]error, len(now))
	j.workers.each(len(now), func(i int) { errs[i] = j.record(ctx, now[i]) })
	for i, err := range errs {
		if errors.Is(err, errRaced) {
			raced = append(raced, now[i])
		} else if err != nil {
			return nil, err
		}
	}
	return raced, nil
}

// record writes the record of h, after the ledger.
func (j *job) record(ctx context.Context, h *hold) error {
	op := &j.Ops[h.done[0].op]
	if err := j.list(ctx, h, h.found, h.rec, 1); err != nil {
		return err
	}
	item := &memcache.Item{Key: h.key, Expiration: gone}
	item.Value = fmt.Append(nil, h.rec.By.Whole, h.rec.By.Frac, h.rec.Mark, h.rec.Ends, h.rec.Settled, h.reset, h.rec.At)
	if h.rec.Ends > 0 {
		item.Expiration = expiration(h.rec.Ends-op.Now, 0, time.Now())
	}
	err := j.put(item, h.item)
	if h.written = err == nil; errors.Is(err, errRaced) {
		// Others who settle this reservation, too, may have taken its hits for a moment.
		if lost := j.list(ctx, h, h.rec, h.found, patience); errors.Is(lost, errRaced) {
			return crowded(h.key)
		} else if lost != nil {
			return lost
		}
	}
	return err
}

// list takes the reservation off out of the ledger of h and adds the reservation on, so that the
// hits of on come back if nobody settles them. A settled or zero Record stands for none.
func (j *job) list(ctx context.Context, h *hold, off, on backends.Record, tries int) error {
	op := &j.Ops[h.done[0].op]
	if !op.Hold.GiveBack || !isOpen(off) && !isOpen(on) {
		return nil
	}
	return j.post(ctx, op, tries, func(l *ledger) bool {
		switch {
		case l.Reset > h.reset: // the hits are forgotten
		case isOpen(off) && !l.Open.Take(off, op.Den):
			return false
		case isOpen(on):
			l.Open.Add(on, op.Den)
		}
		return true
	})
}

// redo takes back what the operations of h have charged, and applies them to the record
// that another writer has left.
func (j *job) redo(ctx context.Context, h *hold) error {
	var undo, again []backends.Op
	for _, c := range h.done {
		back, mark, r := c.on, c.on.OwnMark(), &j.Replies[c.op]
		if r.Account != nil {
			back.By = back.By.Sub(r.Account.Cut, back.Den)
		}
		if back.By == (backends.Amount{}) || j.Charges(c.op) == 0 {
			continue
		}
		if back.Hold, back.Group = nil, 0; back.Verb.GivesBack() {
			back.Verb, back.Max = backends.Charge, backends.NoMax
		} else {
			back = back.Inverse(r.Until)
			if back.Kind == backends.List {
				back.Mark = mark
			}
		}
		undo = append(undo, back)
	}
	for _, i := range h.ops {
		op := j.Ops[i]
		op.Group = 0
		again = append(again, op)
	}
	if err := newJob(j.server, &backends.Batch{Ops: undo}).rounds(ctx); err != nil {
		return fmt.Errorf("give back: %w", err)
	}
	next := newJob(j.server, &backends.Batch{Ops: again})
	if next.round = j.round + 1; next.round == maxRounds {
		return crowded(h.key)
	}
	if err := next.run(ctx); err != nil {
		return err
	}
	for n, i := range h.ops {
		j.Replies[i], j.charged[i] = next.Replies[n], next.charged[n]
	}
	return nil
}

// lapse gives back the hits that nobody has settled, on cells that are still to be written.
func (j *job) lapse(ctx context.Context) (lapsed bool, err error) {
	for i, c := range j.of {
		op := &j.Ops[i]
		if op.Hold == nil || !op.Hold.GiveBack || c.written {
			continue
		}
		l, err := readLedger(op, j.found[StoredKey(op.Hold.Key)])
		if err != nil || len(l.Open.Lapse(op.Now)) == 0 {
			continue
		}
		var back []backends.Op
		err = j.post(ctx, op, 1, func(l *ledger) bool {
			due := l.Open.Lapse(op.Now)
			back = nil
			for _, rec := range due {
				if on := rec.Lapsed(op); !on.ReadOnly() {
					back = append(back, on)
				}
			}
			return len(due) > 0
		})
		if err == nil {
			err = newJob(j.server, &backends.Batch{Ops: back}).rounds(ctx)
		}
		if err != nil && !errors.Is(err, errRaced) {
			return false, err
		}
		lapsed = true
	}
	return lapsed, nil
}

// ledger is the item at a Hold.Key, in JSON. It is there while hits are to come back, and
// after a reset. memcached's 1 MB holds the hits of more than 10,000 different times; beyond,
// a reservation gets memcached's error, and its hits stay charged.
type ledger struct {
	// Reset is when the records were reset, in µs since the epoch. A record that was written with
	// an earlier Reset no longer counts.
	Reset int64
	Open  backends.Lapsing
}

// readLedger reads the ledger of op's Hold.Key from its item.
func readLedger(op *backends.Op, item *memcache.Item) (l ledger, err error) {
	if item != nil && json.Unmarshal(item.Value, &l) != nil {
		err = foreign(StoredKey(op.Hold.Key), errNonsense)
	}
	return l, err
}

// post changes the ledger of op's Hold.Key. change returns false while it cannot; post returns
// errRaced after so many more tries.
func (j *job) post(ctx context.Context, op *backends.Op, tries int, change func(*ledger) bool) error {
	key := StoredKey(op.Hold.Key)
	item := j.found[key] // it may be of before an earlier post
	for try := range maxRounds {
		l, err := readLedger(op, item)
		if err != nil {
			return err
		}
		if change(&l) {
			written := &memcache.Item{Key: key, Expiration: expiration(longest(op), 0, time.Now())}
			if written.Value, err = json.Marshal(l); err != nil {
				return err
			}
			if err = j.put(written, item); !errors.Is(err, errRaced) {
				return err
			}
		} else if try >= tries {
			return errRaced
		}
		if err := j.pause(ctx, try); err != nil {
			return err
		}
		found, err := j.get([]string{key})
		if err != nil {
			return err
		}
		item = found[key]
	}
	return crowded(key)
}

// longest is how long op's ledger is kept: as long as a record, and as any cell that op's
// limit may leave.
func longest(op *backends.Op) int64 {
	cell := 2 * op.Window
	switch {
	case op.Kind == backends.Meter:
		cell = op.Furthest().Whole - op.Now
	case op.Span == backends.Carried:
		cell = op.CarriedUntil(min(op.Max.Whole, backends.MaxValue)+op.Debt.Whole) - op.Now
	case op.Kind == backends.Counter:
		cell = op.Until - op.Now
	}
	return max(cell, 3*op.Hold.Longest)
}

func isOpen(rec backends.Record) bool { return rec.Ends > 0 && !rec.Settled }
