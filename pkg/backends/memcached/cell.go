package memcached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/split"
)

const (
	// maxRounds bounds how often a compare-and-swap is tried. Each time it fails,
	// another writer has changed the cell, so all rounds fail only on a cell with
	// about as many writers at once.
	maxRounds = 32
	// The pause before the next round is random, up to a bound that doubles
	// from minPause to maxPause.
	minPause = 250 * time.Microsecond
	maxPause = 16 * time.Millisecond
)

// cell is a cell and operations on it, on their way: one with a reservation, or any without.
type cell struct {
	*server
	backends.Batch // its own copy, as it may outlive the caller
	key            string
	keys           []string  // of the items to read; none if memcached's own commands do all
	both           [2]string // key, and that of the record of the reservation
	look           bool      // see split.Part
	then           *cell     // the operations after these on the same cell
	err            error
}

// begin makes c the cell of p.
func (c *cell) begin(s *server, p *split.Part) {
	*c = cell{server: s, key: p.Cell, look: p.Look, both: [2]string{p.Cell}, Batch: backends.Batch{
		Ops: slices.Clone(p.Ops), Replies: make([]backends.Reply, len(p.Ops)), AllOrNothing: p.AllOrNothing}}
	if len(c.Ops) == 1 {
		c.Ops[0].Group = 0
	}
	switch {
	case p.Alone && c.Ops[0].Identified(): // else only the cell is read
		c.both[1] = StoredKey(c.Ops[0].Hold.RecordKey())
		c.keys = c.both[:]
	case !c.counts():
		c.keys = c.both[:1]
	}
}

// counts reports whether memcached's incr and decr can do all operations.
func (c *cell) counts() bool {
	reads := true
	for i := range c.Ops {
		op := &c.Ops[i]
		if !op.Unconditional() || !isNumber(op) {
			return false
		}
		reads = reads && op.ReadOnly()
	}
	return !reads && !c.look && !c.Together() // an incr of 0 is a write
}

// again calls turn with the items at keys, and with what it reads then as long as another writer
// was faster. found are the items of the first round; nil has them read.
func (c *cell) again(ctx context.Context, found items, keys []string, turn func(round int, found items) error) (err error) {
	for round := range maxRounds {
		if round > 0 {
			found = nil
			if err = c.pause(ctx, round); err != nil {
				return err
			}
		}
		if found == nil {
			if found, err = c.get(keys); err != nil {
				return err
			}
		}
		if err = turn(round, found); !errors.Is(err, errRaced) {
			return err
		}
	}
	return fmt.Errorf("the key whose SHA-256 begins with %s: %d other writes came first", backends.KeyHash(c.key), maxRounds)
}

// pause waits before another round after that many, so that writers do not collide again.
func (c *cell) pause(ctx context.Context, round int) error {
	select {
	case <-time.After(rand.N(min(maxPause, minPause<<min(round, 7)))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.workers.ctx.Done():
		return errClosed
	}
}

// swap applies the operations to the cell as it was found, and writes it if nobody has changed it since.
func (c *cell) swap(_ int, found items) error {
	r, err := decode(&c.Ops[0], found[c.key])
	if err != nil {
		return foreign(c.key, err)
	}
	if c.look {
		for i := range c.Ops {
			found, tried := r.clone(), r.clone()
			for k := range i {
				if c.FitsBeside(k, i) {
					tried.apply(&c.Ops[k])
				}
			}
			c.Replies[i] = tried.Probe(&c.Ops[i], backends.Record{})
			c.Settle(i, found.Probe(&c.Ops[i], backends.Record{}))
		}
		return nil
	}
	var before []*record // each operation, if they depend on each other
	c.ApplyTogether(func(i int) backends.Reply {
		if c.Together() {
			before = append(before, r.clone())
		}
		return r.apply(&c.Ops[i])
	}, func(first, _ int) { r = before[first].clone() },
		func(_ int, op *backends.Op) backends.Reply { return r.apply(op) })
	return c.store(r, found)
}

// store writes the cell as r, unless it was found so, if nobody has changed it since it was found.
func (c *cell) store(r *record, found items) error {
	item, was, jitter := r.encode(c.key), found[c.key], time.Duration(0)
	same := was == nil && r.empty()
	if was != nil {
		same = bytes.Equal(bytes.TrimRight(item.Value, spaces), bytes.TrimRight(was.Value, spaces))
	}
	if same {
		return nil
	}
	if isNumber(r.op) {
		jitter = c.jitter
	}
	if item.Expiration = expiration(r.left, jitter, time.Now()); r.empty() {
		item.Expiration = gone
	}
	return c.put(item, found)
}

// foreign is the error of an operation whose key holds something that this
// store did not write. It does not tell the key, which may hold values that
// identify customers.
func foreign(key string, err error) error {
	return fmt.Errorf("%w: a key does not hold a counter of this limit (%w): find the key whose SHA-256 begins with %s and delete it (docs/backends.md)",
		backends.ErrUnavailable, err, backends.KeyHash(key))
}

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
