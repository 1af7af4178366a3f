package memcached

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
)

// patience is how many rounds a writer waits for another one that is about to settle.
const patience = maxRounds / 4

// reserve applies the operation of c, which makes or settles a reservation, to the cell and the
// record as they were found.
//
// No step is atomic over two items, so a crash between two writes leaves hits charged. It
// gives none away: the cell is charged before the record is written, and hits go back to the
// cell after that. Of two writers of a record the first one wins; the other takes back what it has
// charged and begins anew.
func (c *cell) reserve(ctx context.Context, round int, found items) error {
	op, key := &c.Ops[0], c.both[1]
	r, err := decode(op, found[c.key])
	if err != nil {
		return foreign(c.key, err)
	}
	rec, err := decodeReservation(found[key])
	if err != nil {
		return foreign(key, err)
	}
	if isClaimed(op, r, rec) {
		if round < patience {
			return errRaced
		}
		r.Open.Add(op, rec) // that writer has crashed, or is slow
	}
	if c.look {
		c.Replies[0] = r.Probe(op, rec)
		return nil
	}
	on, after, reply := r.stepHold(op, rec)
	c.Replies[0] = reply
	switch state := reply.HoldState(); {
	case state != backends.Held && state != backends.Settled:
		return c.store(r, found)
	case on.Verb.GivesBack() && on.By != backends.Amount{}:
		return c.giveBack(ctx, rec, after, found)
	}
	if err = c.store(r, found); err != nil {
		return err
	}
	if err = c.keep(after, found); errors.Is(err, errRaced) {
		if failed := c.amend(ctx, nil, func(r *record) { r.takeBack(op, &on, &reply, after) }); failed != nil {
			return fmt.Errorf("give back: %w", failed)
		}
	}
	return err
}

// isClaimed reports whether another writer is about to settle the reservation of rec.
func isClaimed(op *backends.Op, r *record, rec backends.Record) bool {
	return !rec.Settled && op.Hold.GiveBack && rec.Number == r.Open.Number && rec.Ends > op.Now+backends.Skew && !r.Open.Has(op, rec)
}

// giveBack settles rec, which becomes after, and then gives hits back. Hits that would come back by
// themselves are claimed before: the cell then has them stay.
func (c *cell) giveBack(ctx context.Context, rec, after backends.Record, found items) error {
	op := &c.Ops[0]
	cell := found // nil once it has changed
	if op.Hold.GiveBack {
		if err := c.change(found, func(r *record) {
			r.Open.Stays = max(r.Open.Stays, rec.Ends)
			r.Open.Take(op, rec)
		}); err != nil {
			return err
		}
		cell = nil
	}
	if err := c.keep(after, found); err != nil {
		return err
	}
	return c.amend(ctx, cell, func(r *record) {
		found := rec
		if rec.Number != r.Open.Number { // the hits are forgotten
			found.Settled = true
		} else if op.Hold.GiveBack { // the step takes it off
			r.Open.Add(op, rec)
		}
		_, _, c.Replies[0] = r.stepHold(op, found)
	})
}

// keep writes the record of the reservation. It returns errRaced if another writer was faster.
func (c *cell) keep(rec backends.Record, found items) error {
	item := &memcache.Item{Key: c.both[1], Value: encodeReservation(rec), Expiration: gone}
	if rec.Ends > 0 {
		item.Expiration = expiration(rec.Ends-c.Ops[0].Now, 0, time.Now())
	}
	return c.put(item, found)
}

// amend changes the cell, whatever other writers do.
func (c *cell) amend(ctx context.Context, found items, f func(*record)) error {
	return c.again(ctx, found, c.both[:1], func(_ int, found items) error { return c.change(found, f) })
}

// change writes the cell as f leaves it, if nobody has changed it since it was found.
func (c *cell) change(found items, f func(*record)) error {
	op := &c.Ops[0]
	r, err := decode(op, found[c.key])
	if err != nil {
		return foreign(c.key, err)
	}
	look := op.Look()
	look.Hold = nil
	r.step(&look) // for how long it has to be kept
	f(r)
	r.left = max(r.left, r.Open.Until()-op.Now)
	return c.store(r, found)
}
