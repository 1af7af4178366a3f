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
	// maxRounds bounds how often a compare-and-swap is tried. In each round
	// that one loses another one wins, so only a cell with about as many
	// writers at once can use it up.
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
	ops          []backends.Op
	allOrNothing bool

	cells   []*target
	replies []backends.Reply
	refused bool
}

// target is a cell and the operations of the batch on it.
type target struct {
	key     string
	ops     []int // indexes into job.ops, ascending
	counts  bool  // plain charges only: memcached's incr and decr do
	refunds bool  // refunds only
	read    bool  // its content is needed

	item    *memcache.Item // as read; nil when absent
	record  *record
	written bool
}

func newJob(s *server, b *backends.Batch) *job {
	j := &job{
		server:       s,
		ops:          append([]backends.Op(nil), b.Ops...),
		allOrNothing: b.AllOrNothing && slices.ContainsFunc(b.Ops, canRefuse),
		replies:      make([]backends.Reply, len(b.Ops)),
	}
	j.sort()
	return j
}

// canRefuse reports whether op can refuse an all-or-nothing batch.
func canRefuse(op backends.Op) bool { return !op.Soft && !op.Unconditional() }

// sort groups the operations by cell.
func (j *job) sort() {
	byKey := make(map[string]*target, len(j.ops))
	for i := range j.ops {
		op := &j.ops[i]
		t := byKey[op.Key]
		if t == nil {
			t = &target{key: safeKey(op.Key), counts: true, refunds: true}
			byKey[op.Key] = t
			j.cells = append(j.cells, t)
		}
		t.ops = append(t.ops, i)
		t.counts = t.counts && op.Unconditional() && formOf(op) == plain
		t.refunds = t.refunds && op.Refund
	}
	for _, t := range j.cells {
		t.read = !t.counts || j.allOrNothing
	}
	for i := range j.ops {
		if t := byKey[j.ops[i].Prev]; t != nil && j.ops[i].Prev != "" {
			t.counts, t.read = false, true // an operation of this batch looks at it
		}
	}
}

// run applies the batch: rounds of one read and one write of the cells that
// are still to be written, side by side.
func (j *job) run(ctx context.Context) error {
	err := j.rounds(ctx)
	if !j.allOrNothing || err == nil && !j.refused {
		return err
	}
	if undone := j.giveBack(ctx); err == nil {
		err = undone
	}
	if err == nil {
		err = j.unstep()
	}
	return err
}

func (j *job) rounds(ctx context.Context) error {
	todo := j.cells
	for round := range maxRounds {
		if round > 0 {
			if err := j.pause(ctx, round); err != nil {
				return err
			}
		}
		if err := j.look(todo); err != nil {
			return err
		}
		if j.refused {
			return nil
		}
		var err error
		if todo, err = j.write(todo); err != nil || len(todo) == 0 {
			return err
		}
	}
	return fmt.Errorf("cell %s: %d other writes came first", todo[0].key, maxRounds)
}

// pause lets the writers who were faster finish.
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

// look reads the cells and steps through their operations, in order.
func (j *job) look(cells []*target) error {
	found, err := j.get(j.keys(cells))
	if err != nil {
		return err
	}
	byKey := make(map[string]*target, len(cells))
	mine := make([]*target, len(j.ops))
	for _, t := range cells {
		byKey[t.key] = t
		for _, i := range t.ops {
			mine[i] = t
		}
		if t.item, t.record = found[t.key], nil; t.read {
			if t.record, err = decode(&j.ops[t.ops[0]], text(t.item)); err != nil {
				return fmt.Errorf("cell %s: %w", t.key, err)
			}
		}
	}
	for i, t := range mine {
		if t == nil {
			continue
		}
		op := &j.ops[i]
		var prev int64
		if op.Prev != "" {
			if prev, err = previous(op, byKey, found); err != nil {
				return err
			}
		}
		j.replies[i].Prev = prev
		if t.record == nil {
			continue
		}
		j.replies[i] = t.record.step(op, prev)
		if j.allOrNothing && !op.Soft && j.replies[i].Admitted < op.Times {
			j.refused = true
		}
	}
	return nil
}

// previous is the count of op.Prev's cell, as the operations before op left it.
func previous(op *backends.Op, cells map[string]*target, found map[string]*memcache.Item) (int64, error) {
	key := safeKey(op.Prev)
	if t := cells[key]; t != nil {
		return t.record.count(op.Now), nil
	}
	r, err := decode(op, text(found[key]))
	if err != nil {
		return 0, fmt.Errorf("cell %s: %w", key, err)
	}
	return r.count(op.Now), nil
}
