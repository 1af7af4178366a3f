package memcached

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
)

// keys are the cells that have to be read, each once.
func (j *job) keys() []string {
	var keys []string
	for _, c := range j.cells {
		if c.swaps() {
			keys = append(keys, c.key)
		}
	}
	for _, h := range j.holds {
		if !h.written {
			keys = append(keys, h.key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// get reads cells: one request per server, all at once.
func (j *job) get(keys []string) (map[string]*memcache.Item, error) {
	switch len(keys) {
	case 0:
		return nil, nil
	case 1: // spares the goroutine that GetMulti starts
		item, err := j.client.Get(keys[0])
		if errors.Is(err, memcache.ErrCacheMiss) {
			return nil, nil
		}
		return map[string]*memcache.Item{keys[0]: item}, err
	}
	return j.client.GetMulti(keys)
}

func text(item *memcache.Item) []byte {
	if item == nil {
		return nil
	}
	return item.Value
}

// write writes cells side by side and returns one that has to be tried again, or nil.
// In an all-or-nothing batch, cells that have only refunds come last: the batch is
// admitted by then, so that a refund never has to be undone.
func (j *job) write(ctx context.Context) (left *cell, err error) {
	now := slices.DeleteFunc(slices.Clone(j.cells), func(c *cell) bool { return c.written })
	if j.AllOrNothing && !j.Refused && slices.ContainsFunc(now, func(c *cell) bool { return !c.refunds }) {
		now = slices.DeleteFunc(now, func(c *cell) bool { return c.refunds })
	}
	if now, err = j.settle(ctx, now); err != nil {
		return nil, err
	}
	errs := make([]error, len(now))
	j.workers.each(len(now), func(i int) {
		if c := now[i]; c.counts {
			errs[i] = j.count(c)
		} else {
			errs[i] = j.swap(c)
		}
	})
	for _, err := range errs {
		if err != nil && !errors.Is(err, errRaced) {
			return nil, err
		}
	}
	raced, err := j.keep(false, func(c *cell) bool { return c.written })
	if err != nil {
		return nil, err
	}
	for _, h := range raced {
		if err := j.redo(ctx, h); err != nil {
			return nil, err
		}
	}
	if i := slices.IndexFunc(j.cells, func(c *cell) bool { return !c.written }); i >= 0 {
		left = j.cells[i]
	}
	return left, nil
}

// settle writes what goes before the cells: it claims hits, and writes the records of hits that
// go back. It returns the cells that can be written now.
func (j *job) settle(ctx context.Context, now []*cell) (ready []*cell, err error) {
	for _, c := range now {
		waits := slices.ContainsFunc(j.holds, func(h *hold) bool { return h.waits && slices.Contains(c.ops, h.ops[0]) })
		if claims := j.claims(c); waits {
			continue
		} else if len(claims) == 0 {
			ready = append(ready, c)
		} else if err := j.claim(c, claims); err != nil && !errors.Is(err, errRaced) {
			return nil, err
		}
	}
	raced, err := j.keep(true, func(c *cell) bool { return slices.Contains(ready, c) })
	for _, h := range raced {
		if h.claimed && err == nil {
			err = j.unclaim(ctx, h)
		}
	}
	return slices.DeleteFunc(ready, func(c *cell) bool {
		return slices.ContainsFunc(raced, func(h *hold) bool { return j.of[h.done[0].op] == c })
	}), err
}

// errRaced says that another writer was faster.
var errRaced = errors.New("changed by another writer")

// swap writes a cell as its operations left it, if nobody has changed it since
// it was read.
func (j *job) swap(c *cell) error {
	if c.record != nil {
		if err := j.store(c.key, c.record, c.item); err != nil {
			return err
		}
	}
	j.wrote(c)
	return nil
}

// store writes r, if it was changed and the cell is still as it was found.
func (j *job) store(key string, r *record, found *memcache.Item) error {
	if !r.changed || r.empty() && found == nil {
		return nil
	}
	item := &memcache.Item{Key: key, Value: r.encode()}
	var jitter time.Duration
	if r.form == number {
		jitter = j.jitter
	}
	if item.Expiration = expiration(r.left, jitter, time.Now()); r.empty() {
		item.Expiration = gone
	}
	return j.put(item, found)
}

// put writes an item, or removes it, if nobody has changed it since it was read as found.
func (j *job) put(item, found *memcache.Item) (err error) {
	if found == nil {
		err = j.client.Add(item)
	} else {
		item.CasID = found.CasID
		err = j.client.CompareAndSwap(item)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, memcache.ErrNotStored), errors.Is(err, memcache.ErrCASConflict), errors.Is(err, memcache.ErrCacheMiss):
		return errRaced
	}
	return fmt.Errorf("write: %w", err)
}

// wrote notes that memcached has the cell as its operations left it.
func (j *job) wrote(c *cell) {
	c.written = true
	for _, i := range c.ops {
		j.charged[i] = j.Charges(i)
	}
}

// count applies charges and refunds that memcached's incr and decr can do, in
// order. memcached refuses them on a cell with credit: count then leaves the
// remaining operations on the cell to compare-and-swap, in the next round.
func (j *job) count(c *cell) error {
	for n, i := range c.ops {
		op := &j.Ops[i]
		value, err := j.charge(c.key, op)
		if err != nil && strings.Contains(err.Error(), "non-numeric") { // memcached's CLIENT_ERROR
			c.counts, c.ops = false, c.ops[n:]
			return errRaced
		}
		if err != nil {
			return fmt.Errorf("count: %w", err)
		}
		j.Replies[i] = backends.Reply{
			Now:      op.Now,
			Admitted: op.Times,
			Value:    backends.Amount{Whole: value},
			Until:    op.Until,
		}
		if !op.Verb.GivesBack() {
			j.Replies[i].Admitted = op.Fitting(op.Max.Whole, value)
		}
		j.of[i] = nil
	}
	c.written = true
	return nil
}

// charge applies one charge or refund and returns the count after it.
func (j *job) charge(key string, op *backends.Op) (int64, error) {
	by := uint64(op.By.Whole * op.Times)
	lasts := func() int32 { return expiration(op.Until-op.Now, j.jitter, time.Now()) }
	for range maxRounds {
		var value uint64
		var err error
		if op.Verb.GivesBack() {
			value, err = j.client.Decrement(key, by) // stops at 0
		} else {
			if by > 0 {
				j.births.expect(key, lasts)
			}
			value, err = j.client.Increment(key, by)
			if by > 0 {
				j.births.charged(key, err == nil)
			}
		}
		switch {
		case err == nil:
			return j.saturate(key, value, by)
		case !errors.Is(err, memcache.ErrCacheMiss):
			return 0, err
		case op.Verb.GivesBack() || by == 0:
			return 0, nil
		}
		err = j.client.Add(&memcache.Item{
			Key:        key,
			Value:      strconv.AppendUint(nil, by, 10),
			Expiration: lasts(),
		})
		if err == nil {
			return int64(by), nil
		}
		if !errors.Is(err, memcache.ErrNotStored) { // else another writer has created it: try incr again
			return 0, err
		}
	}
	return 0, fmt.Errorf("it vanished %d times", maxRounds)
}

// saturate lowers a count that a charge of by has raised above MaxValue to
// MaxValue, long before it would wrap at 2^64. Each of several charges at once
// takes back its own part.
func (j *job) saturate(key string, value, by uint64) (int64, error) {
	const bound = uint64(backends.MaxValue)
	if value <= bound {
		return int64(value), nil
	}
	_, err := j.client.Decrement(key, min(value-bound, by))
	if err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
		return 0, err
	}
	return backends.MaxValue, nil
}
