package memcached

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
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

// job is one batch on its way. It has its own copy of the operations, as it
// may outlive the caller.
type job struct {
	*server
	backends.Batch
	together bool // operations depend on each other, see backends.Batch.Together

	cells []*cell
	byKey map[string]*cell // the same, by their keys in memcached
	of    []*cell          // the cell of each operation; nil once memcached's incr or decr has applied it
	holds []*hold
	// before takes what each operation was tried on back to what it was before.
	before []func()
	found  map[string]*memcache.Item // as read in this round
	round  int
	// charged says how often the writes to memcached have charged each operation.
	charged []int64
}

// cell is a cell and the operations of the batch on it.
type cell struct {
	key     string // in memcached
	ops     []int  // indexes into job.Ops, ascending
	counts  bool   // memcached's incr and decr can do all operations
	refunds bool   // refunds only
	reads   bool   // read-only operations only

	item    *memcache.Item // as read; nil when absent
	record  *record        // the cell after the operations; nil if it is foreign
	written bool
}

func newJob(s *server, b *backends.Batch) *job {
	j := &job{
		server:   s,
		Batch:    backends.Batch{Ops: slices.Clone(b.Ops), AllOrNothing: b.AllOrNothing},
		together: b.Together(),
		byKey:    make(map[string]*cell, len(b.Ops)),
		of:       make([]*cell, len(b.Ops)),
		charged:  make([]int64, len(b.Ops)),
		before:   make([]func(), len(b.Ops)),
	}
	j.Replies = make([]backends.Reply, len(b.Ops))
	j.sort()
	return j
}

// sort groups the operations by cell.
func (j *job) sort() {
	for i := range j.Ops {
		op, key := &j.Ops[i], StoredKey(j.Ops[i].Key)
		c := j.byKey[key]
		if c == nil {
			c = &cell{key: key, counts: !j.together, refunds: true, reads: true}
			j.byKey[key] = c
			j.cells = append(j.cells, c)
		}
		j.of[i] = c
		c.ops = append(c.ops, i)
		if op.Identified() && !op.Verb.Operates() {
			h := j.holdOf(i)
			h.ops = append(h.ops, i)
		}
		c.counts = c.counts && op.Unconditional() && formOf(op) == number
		c.refunds = c.refunds && op.Verb.GivesBack()
		c.reads = c.reads && op.ReadOnly()
	}
	for _, c := range j.cells {
		c.counts = c.counts && !c.reads // an incr of 0 is a write
	}
}

// run applies the batch: rounds of one read and one write of the cells that
// are still to be written, side by side. If a later round shows that the batch or
// a group does not pass, charges of earlier rounds are given back.
func (j *job) run(ctx context.Context) error {
	err := j.rounds(ctx)
	if err == nil {
		j.Decide()
	}
	if !j.together {
		return err
	}
	if undone := j.giveBack(ctx, err != nil); err == nil {
		err = undone
	}
	return err
}

func (j *job) rounds(ctx context.Context) error {
	var left *cell
	for ; j.round < maxRounds; j.round++ {
		if j.round > 0 {
			if err := j.pause(ctx, j.round); err != nil {
				return err
			}
		}
		if err := j.look(); err != nil {
			return err
		}
		var err error
		if left, err = j.write(ctx); err != nil || left == nil {
			return err
		}
	}
	return crowded(left.key)
}

// crowded is the error of a compare-and-swap that was given up.
func crowded(key string) error {
	return fmt.Errorf("the key whose SHA-256 begins with %s: %d other writes came first", backends.KeyHash(key), maxRounds)
}

// pause waits before another round after that many, so that writers do not collide again.
func (j *job) pause(ctx context.Context, round int) error {
	select {
	case <-time.After(rand.N(min(maxPause, minPause<<min(round, 7)))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-j.workers.ctx.Done():
		return errClosed
	}
}

// look reads the cells that the steps need and tries their operations in order.
// The records then have the values to write.
func (j *job) look() (err error) {
	if j.found, err = j.get(j.keys()); err != nil {
		return err
	}
	j.open()
	j.ApplyTogether(j.try, func(first, end int) {
		for i := end - 1; i >= first; i-- {
			j.before[i]()
		}
	}, j.step)
	return nil
}

// swaps reports whether the cell is still to be written by a compare-and-swap.
func (c *cell) swaps() bool { return !c.counts && !c.written }

// open reads the cells that are still to be written, and the records of reservations, as they
// were found. An operation whose cell is foreign gets an error.
func (j *job) open() {
	for _, c := range j.cells {
		if !c.swaps() {
			continue
		}
		var err error
		c.item = j.found[c.key]
		if c.record, err = decode(&j.Ops[c.ops[0]], text(c.item)); err != nil {
			for _, i := range c.ops {
				j.Replies[i] = backends.Reply{Err: foreign(c.key, err)}
			}
		}
	}
	for _, h := range j.holds {
		h.err = j.read(h)
	}
}

// step applies op, which stands for operation i, to its cell. The reply stays as it is if the
// cell is written, or foreign.
func (j *job) step(i int, op *backends.Op) backends.Reply {
	c := j.of[i]
	if c == nil || !c.swaps() || c.record == nil {
		return j.Replies[i]
	}
	if op.Identified() && !op.Verb.Operates() {
		if err := j.holdOf(i).err; err != nil {
			return backends.Reply{Err: err}
		}
	}
	return j.stepOn(i, op, c.record)
}

// try applies the step of operation i. If operations depend on each other, an
// operation that did not fit in an earlier round does not fit in later rounds
// either: charges of other operations already follow from its refusal.
func (j *job) try(i int) backends.Reply {
	op := &j.Ops[i]
	depends := j.together && (j.AllOrNothing || op.Group > 0)
	if depends {
		j.before[i] = j.save(i)
	}
	if !depends || j.round == 0 || j.Replies[i].Admitted == op.Times {
		return j.step(i, op)
	}
	again := op.Look()
	if op.Verb == backends.Count || op.Overdraws() {
		again = *op
	}
	j.Settle(i, j.step(i, &again))
	return j.Replies[i]
}

// save returns a function that takes the cell and the reservation of operation i back to what
// they are now.
func (j *job) save(i int) (back func()) {
	c, h := j.of[i], new(hold)
	if op := &j.Ops[i]; op.Identified() && !op.Verb.Operates() {
		h = j.holdOf(i)
	}
	cell, reservation := c.record.clone(), *h
	return func() { c.record, *h = cell.clone(), reservation }
}

// giveBack gives back charges of operations that depend on each other, even if
// the caller no longer waits: after a failure all of them, else the charges of
// refused groups or of a refused batch. A refund stays, because the cell's value does
// not tell how much of it the cell took, and so do charges that overdraw or settle.
func (j *job) giveBack(ctx context.Context, failed bool) error {
	var undo []backends.Op
	var undone []int
	for i := range j.Ops {
		op, keep := &j.Ops[i], int64(0)
		if !failed {
			keep = j.Charges(i)
		}
		depends := (j.AllOrNothing || op.Group > 0) && !op.Verb.GivesBack()
		if depends && !op.Overdraws() && j.Replies[i].HoldState() < backends.Settled && j.charged[i] > keep && op.By != (backends.Amount{}) {
			back := op.Inverse(j.Replies[i].Until)
			back.Times, back.Group = j.charged[i]-keep, 0
			undo, undone = append(undo, back), append(undone, i)
		}
	}
	if len(undo) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.timeout)
	defer cancel()
	back := newJob(j.server, &backends.Batch{Ops: undo})
	if err := back.rounds(ctx); err != nil {
		return fmt.Errorf("give back: %w", err)
	}
	for k, at := range undone { // a cell's last operation overwrites the earlier ones
		if j.Replies[at].HoldState() == backends.Held {
			j.Replies[at].Account = nil
		}
		for _, i := range j.of[at].ops {
			j.Replies[i].Value, j.Replies[i].Until = back.Replies[k].Value, back.Replies[k].Until
		}
	}
	return nil
}

// foreign is the error of an operation whose key holds something that this
// store did not write. It does not tell the key, which may hold values that
// identify customers.
func foreign(key string, err error) error {
	return fmt.Errorf("memcached: %w: a key does not hold a counter of this limit (%w): find the key whose SHA-256 begins with %s and delete it (docs/backends.md)",
		backends.ErrUnavailable, err, backends.KeyHash(key))
}
