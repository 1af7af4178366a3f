package memcached

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
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
	round int
	// charged says how often the writes to memcached have charged each operation.
	charged []int64
	over    atomic.Bool // the job is done, or its caller has left
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
		Batch:    backends.Batch{Ops: append([]backends.Op(nil), b.Ops...), AllOrNothing: b.AllOrNothing},
		together: b.Together(),
		charged:  make([]int64, len(b.Ops)),
	}
	j.Replies = make([]backends.Reply, len(b.Ops))
	j.sort()
	return j
}

// sort groups the operations by cell.
func (j *job) sort() {
	byKey := make(map[string]*cell, len(j.Ops))
	for i := range j.Ops {
		op := &j.Ops[i]
		c := byKey[op.Key]
		if c == nil {
			c = &cell{key: StoredKey(op.Key), counts: !j.together, refunds: true, reads: true}
			byKey[op.Key] = c
			j.cells = append(j.cells, c)
		}
		c.ops = append(c.ops, i)
		c.counts = c.counts && op.Unconditional() && op.Prev == "" && formOf(op) == number
		c.refunds = c.refunds && op.Refund
		c.reads = c.reads && op.ReadOnly()
	}
	for _, c := range j.cells {
		c.counts = c.counts && !c.reads // an incr of 0 is a write
	}
	for i := range j.Ops {
		if c := byKey[j.Ops[i].Prev]; c != nil && j.Ops[i].Prev != "" {
			c.counts = false // an operation of this batch looks at it
		}
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
	todo := j.cells
	for ; j.round < maxRounds; j.round++ {
		if j.round > 0 {
			if err := j.pause(ctx, j.round); err != nil {
				return err
			}
		}
		if err := j.look(todo); err != nil {
			return err
		}
		var err error
		if todo, err = j.write(todo); err != nil || len(todo) == 0 {
			return err
		}
	}
	return fmt.Errorf("the key whose SHA-256 begins with %s: %d other writes came first", backends.KeyHash(todo[0].key), maxRounds)
}

// pause waits before the next round, so that writers do not collide again.
func (j *job) pause(ctx context.Context, round int) error {
	limit := maxPause
	if round < 7 {
		limit = min(maxPause, minPause<<round)
	}
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-j.workers.stopped:
		return errClosed
	}
}

// look reads the cells that the steps need and tries their operations in order.
// The records then have the values to write.
func (j *job) look(cells []*cell) error {
	found, err := j.get(j.keys(cells))
	if err != nil {
		return err
	}
	for _, c := range cells {
		c.item = found[c.key]
	}
	j.step(cells, found, j.try)
	if j.Decide() {
		return nil
	}
	j.step(cells, found, func(i int, r *record, prev int64) {
		op := j.Batch.Settled(i)
		j.Settle(i, r.step(&op, prev))
	})
	return nil
}

// step has do step through the operations of cells, in order, from the cells as
// they were found. An operation whose cell is foreign gets an error.
func (j *job) step(cells []*cell, found map[string]*memcache.Item, do func(i int, r *record, prev int64)) {
	byKey := make(map[string]*cell, len(cells))
	mine := make([]*cell, len(j.Ops))
	for _, c := range cells {
		if c.counts {
			continue
		}
		byKey[c.key] = c
		for _, i := range c.ops {
			mine[i] = c
		}
		var err error
		if c.record, err = decode(&j.Ops[c.ops[0]], text(c.item)); err != nil {
			j.fail(c, err)
		}
	}
	for i, c := range mine {
		if c == nil || c.record == nil {
			continue
		}
		prev, err := previous(&j.Ops[i], byKey, found)
		if err != nil {
			j.Replies[i] = backends.Reply{Err: foreign(StoredKey(j.Ops[i].Prev), err)}
			continue
		}
		if op := &j.Ops[i]; op.Verb == backends.Reset && op.Prev != "" {
			delete(found, StoredKey(op.Prev))
		}
		do(i, c.record, prev)
	}
}

// fail gives all operations of a foreign cell an error.
func (j *job) fail(c *cell, err error) {
	for _, i := range c.ops {
		j.Replies[i] = backends.Reply{Err: foreign(c.key, err)}
	}
}

// try applies the step of operation i. If operations depend on each other, an
// operation that did not fit in an earlier round does not fit in later rounds
// either: charges of other operations already follow from its refusal.
func (j *job) try(i int, r *record, prev int64) {
	op := &j.Ops[i]
	depends := j.together && (j.AllOrNothing || op.Group > 0)
	if !depends || j.round == 0 || j.Replies[i].Admitted == op.Times {
		j.Replies[i] = r.step(op, prev)
		return
	}
	again := op.Look()
	if op.ChargeDenied {
		again = *op
	}
	j.Settle(i, r.step(&again, prev))
}

// previous is the count of op.Prev's cell, as the operations before op left it;
// 0 if op has none.
func previous(op *backends.Op, cells map[string]*cell, found map[string]*memcache.Item) (int64, error) {
	if op.Prev == "" {
		return 0, nil
	}
	key := StoredKey(op.Prev)
	if c := cells[key]; c != nil {
		if c.record == nil {
			return 0, errNonsense
		}
		return c.record.count(op.Now), nil
	}
	r, err := decode(op, text(found[key]))
	if err != nil {
		return 0, err
	}
	return r.count(op.Now), nil
}

// foreign is the error of an operation whose key holds something that this
// store did not write. It does not tell the key, which may hold values that
// identify customers.
func foreign(key string, err error) error {
	return fmt.Errorf("memcached: %w: a key does not hold a counter of this limit (%w): find the key whose SHA-256 begins with %s and delete it (docs/backends.md)",
		backends.ErrUnavailable, err, backends.KeyHash(key))
}
