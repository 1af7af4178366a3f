package memcached

import (
	"context"
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
//	"5 0 1700000000000 1700000600000 false 4503599627370497 0"  the Record
//
// No step is atomic over two items, so a crash between two writes leaves hits charged. It
// gives none away: the cell is charged before the record is written, and hits go back to the
// cell after that. Hits that would come back by themselves are claimed before: the cell then
// has them stay. Of two writers of a record the first one wins; the other takes back what it has
// changed and begins anew.
type hold struct {
	key        string // in memcached
	ops        []int  // indexes into job.Ops, ascending
	item       *memcache.Item
	found, rec backends.Record // as read, and after the operations
	done       []charge
	changed    bool // the record has to be written
	back       bool // its hits go back to the cell
	claimed    bool
	waits      bool // for a writer that is about to settle it
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
	key := StoredKey(j.Ops[i].Hold.RecordKey())
	at := slices.IndexFunc(j.holds, func(h *hold) bool { return h.key == key })
	if at < 0 {
		at, j.holds = len(j.holds), append(j.holds, &hold{key: key})
	}
	return j.holds[at]
}

// read has the operations begin at the record as it was found.
func (j *job) read(h *hold) error {
	h.done, h.changed, h.back, h.waits = h.done[:0], false, false, false
	c, op := j.of[h.ops[0]], &j.Ops[h.ops[0]]
	if !h.written {
		h.item, h.found = j.found[h.key], backends.Record{}
		if f := &h.found; h.item != nil {
			n, _ := fmt.Sscan(string(h.item.Value), &f.By.Whole, &f.By.Frac, &f.Mark, &f.Ends, &f.Settled, &f.Number, &f.At)
			if n < 7 {
				return foreign(h.key, errNonsense)
			}
		}
	}
	if h.rec = h.found; !isOpen(h.found) || c.record == nil {
		return nil
	}
	switch open := &c.record.Open; {
	case h.found.Number != open.Number: // the hits are forgotten, or of another window
		h.claimed = false
		h.rec.Settled = h.written && !h.found.Elsewhere(op)
	case h.claimed: // the step takes it off
		open.Add(op, h.found)
	case h.found.Ends > op.Now+backends.Skew && j.round < patience:
		h.waits = op.Hold.GiveBack && !open.Has(op, h.found)
	}
	return nil
}

// stepOn applies op, which stands for operation i, to its cell.
func (j *job) stepOn(i int, op *backends.Op, r *record) backends.Reply {
	if op.Hold == nil {
		return r.step(op)
	}
	if !op.Identified() || op.Verb.Operates() {
		_, _, reply := r.stepHold(op, backends.Record{})
		return reply
	}
	h := j.holdOf(i)
	on, after, reply := r.stepHold(op, h.rec)
	if state := reply.HoldState(); state == backends.Held || state == backends.Settled {
		h.rec, h.changed = after, true
		h.back = h.back || isOpen(h.found) && on.Verb.GivesBack() && on.By != backends.Amount{}
		h.done = append(h.done, charge{i, on})
	}
	return reply
}

// claims are the holds on c whose hits have to be claimed before they go back.
func (j *job) claims(c *cell) (claims []*hold) {
	for _, h := range j.holds {
		if h.changed && h.back && !h.claimed && j.Ops[h.ops[0]].Hold.GiveBack && j.of[h.done[0].op] == c {
			claims = append(claims, h)
		}
	}
	return claims
}

// claim has the hits of holds on c stay, if nobody has changed c since it was read.
func (j *job) claim(c *cell, claims []*hold) error {
	op := &j.Ops[c.ops[0]]
	r, err := decode(op, text(c.item))
	if err != nil {
		return foreign(c.key, err)
	}
	for _, h := range claims {
		r.Open.Stays = max(r.Open.Stays, h.found.Ends)
		r.Open.Take(op, h.found)
	}
	r.changed, r.left = true, max(c.record.left, r.Open.Until()-op.Now)
	if err = j.store(c.key, r, c.item); err == nil {
		for _, h := range claims {
			h.claimed = true
		}
	}
	return err
}

// keep writes records whose cells are ready, of hits that go back or of the others, and
// returns those for which another writer was faster.
func (j *job) keep(back bool, ready func(*cell) bool) (raced []*hold, err error) {
	var now []*hold
	for _, h := range j.holds {
		if h.changed && !h.written && h.back == back && ready(j.of[h.done[0].op]) {
			now = append(now, h)
		}
	}
	errs := make([]error, len(now))
	j.workers.each(len(now), func(i int) { errs[i] = j.record(now[i]) })
	for i, err := range errs {
		if errors.Is(err, errRaced) {
			raced = append(raced, now[i])
		} else if err != nil {
			return nil, err
		}
	}
	return raced, nil
}

// record writes the record of h.
func (j *job) record(h *hold) error {
	op, rec := &j.Ops[h.done[0].op], &h.rec
	item := &memcache.Item{Key: h.key, Expiration: gone}
	item.Value = fmt.Append(nil, rec.By.Whole, rec.By.Frac, rec.Mark, rec.Ends, rec.Settled, rec.Number, rec.At)
	if rec.Ends > 0 {
		item.Expiration = expiration(rec.Ends-op.Now, 0, time.Now())
	}
	err := j.put(item, h.item)
	h.written = err == nil
	return err
}

// unclaim has the hits of h come back again, as another writer has settled them.
func (j *job) unclaim(ctx context.Context, h *hold) error {
	h.claimed = false
	op := &j.Ops[h.ops[0]]
	return j.amend(ctx, op, func(r *record) { r.reopen(op, h.found) })
}

// redo takes back what the operations of h have changed, and applies them to the record
// that another writer has left.
func (j *job) redo(ctx context.Context, h *hold) error {
	op := &j.Ops[h.done[0].op]
	if err := j.amend(ctx, op, func(r *record) {
		for _, c := range h.done {
			if back := j.undo(c); back.By != (backends.Amount{}) && j.Charges(c.op) > 0 {
				r.step(&back)
			}
		}
		r.Open.Take(op, h.rec)
		r.reopen(op, h.found)
	}); err != nil {
		return fmt.Errorf("give back: %w", err)
	}
	var again []backends.Op
	for _, i := range h.ops {
		op := j.Ops[i]
		op.Group = 0
		again = append(again, op)
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

// undo is the operation that takes c back.
func (j *job) undo(c charge) backends.Op {
	back, mark, r := c.on, c.on.OwnMark(), &j.Replies[c.op]
	if r.Account != nil {
		back.By = back.By.Sub(r.Account.Cut, back.Den)
	}
	if back.Hold, back.Group = nil, 0; back.Verb.GivesBack() {
		back.Verb, back.Max = backends.Charge, backends.NoMax
		return back
	}
	if back = back.Inverse(r.Until); back.Kind == backends.List {
		back.Mark = mark
	}
	return back
}

// amend changes the cell of op, whatever other writers do.
func (j *job) amend(ctx context.Context, op *backends.Op, change func(*record)) error {
	key := StoredKey(op.Key)
	for try := range maxRounds {
		found, err := j.get([]string{key})
		if err != nil {
			return err
		}
		r, err := decode(op, text(found[key]))
		if err != nil {
			return foreign(key, err)
		}
		look := op.Look()
		look.Hold = nil
		r.step(&look) // for how long it has to be kept
		change(r)
		r.changed, r.left = true, max(r.left, r.Open.Until()-op.Now)
		if err = j.store(key, r, found[key]); !errors.Is(err, errRaced) {
			return err
		}
		if err = j.pause(ctx, try); err != nil {
			return err
		}
	}
	return crowded(key)
}

func isOpen(rec backends.Record) bool { return rec.Ends > 0 && !rec.Settled }
