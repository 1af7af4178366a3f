package memcached

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/split"
)

// byServer groups parts by their server, and sorts them by their cell within that.
func byServer(parts []*split.Part) (groups [][]*split.Part) {
	sorted := slices.Clone(parts)
	slices.SortStableFunc(sorted, func(a, b *split.Part) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), strings.Compare(a.Cell, b.Cell))
	})
	first := 0
	for i := range sorted {
		if i+1 == len(sorted) || sorted[i+1].Server != sorted[i].Server {
			groups = append(groups, sorted[first:i+1])
			first = i + 1
		}
	}
	return groups
}

// apply applies parts of a batch, which are on one server and sorted by cell: one request reads
// what their cells need at first, and then these are changed side by side. Errors are in the
// replies.
func apply(ctx context.Context, s *server, parts []*split.Part) {
	var first []*cell // with the operations that are the first ones on their cells
	var keys []string
	cells := make([]cell, len(parts))
	for i, p := range parts {
		c := &cells[i]
		if c.begin(s, p); i > 0 && c.key == parts[i-1].Cell {
			cells[i-1].then = c
		} else {
			first, keys = append(first, c), append(keys, c.keys...)
		}
	}
	var ended atomic.Bool // nothing touches the cells any more
	err := s.call(ctx, func(ctx context.Context) error {
		found, err := s.get(keys)
		if err != nil {
			return err
		}
		s.workers.each(len(first), func(i int) { first[i].runAll(ctx, found) })
		ended.Store(true)
		for i := range cells {
			err = errors.Join(err, cells[i].err)
		}
		return err
	})
	each := ended.Load()
	for i, p := range parts {
		if each {
			err = cells[i].err
		}
		if err != nil {
			_ = p.Fail(s.unavailable(err))
			continue
		}
		copy(p.Replies, cells[i].Replies)
		p.Decide()
	}
}

// runAll applies the operations of c, and those that come after them on the cell. found are the
// items at c.keys.
func (c *cell) runAll(ctx context.Context, found items) {
	for ; c != nil; c = c.then {
		c.err = c.run(ctx, found)
		found = nil // the cell has changed
	}
}

// run applies the operations of c. found are the items at c.keys, nil if they are still to be read.
func (c *cell) run(ctx context.Context, found items) error {
	switch len(c.keys) {
	case 0:
		return c.count(ctx)
	case 1:
		return c.again(ctx, found, c.keys, c.swap)
	}
	return c.again(ctx, found, c.keys, func(found items) error { return c.reserve(ctx, found) })
}

// count applies charges and refunds that memcached's incr and decr can do, in order. memcached
// refuses them on a cell with credit or open reservations: then the rest is swapped.
func (c *cell) count(ctx context.Context) error {
	for i := range c.Ops {
		op, r := &c.Ops[i], &c.Replies[i]
		value, err := c.charge(op)
		if err != nil && strings.Contains(err.Error(), "non-numeric") { // memcached's CLIENT_ERROR
			rest := *c
			rest.Ops, rest.Replies = c.Ops[i:], c.Replies[i:]
			return rest.again(ctx, nil, []string{c.key}, rest.swap)
		}
		if err != nil {
			return fmt.Errorf("count: %w", err)
		}
		*r = backends.Reply{Now: op.Now, Admitted: op.Times, Value: backends.Amount{Whole: value}, Until: op.Until}
		if !op.Verb.GivesBack() {
			r.Admitted = op.Fitting(op.Max.Whole, value)
		}
	}
	return nil
}

// charge applies one charge or refund and returns the count after it.
func (c *cell) charge(op *backends.Op) (int64, error) {
	by, change := uint64(op.By.Whole*op.Times), c.client.Increment
	if op.Verb.GivesBack() {
		change = c.client.Decrement // stops at 0
	}
	for range maxRounds {
		value, err := change(c.key, by)
		switch {
		case err == nil:
			return c.saturate(value, by)
		case !errors.Is(err, memcache.ErrCacheMiss):
			return 0, err
		case op.Verb.GivesBack() || by == 0:
			return 0, nil
		}
		err = c.client.Add(&memcache.Item{
			Key:        c.key,
			Value:      strconv.AppendUint(nil, by, 10),
			Expiration: expiration(op.Until-op.Now, c.jitter, time.Now()),
		})
		if err == nil {
			return int64(by), nil
		}
		if !errors.Is(err, memcache.ErrNotStored) { // else another writer has created it: try again
			return 0, err
		}
	}
	return 0, fmt.Errorf("it vanished %d times", maxRounds)
}

// saturate lowers a count that a charge of by has raised above MaxValue to
// MaxValue, long before it would wrap at 2^64. Each of several charges at once
// takes back its own part.
func (c *cell) saturate(value, by uint64) (int64, error) {
	const bound = uint64(backends.MaxValue)
	if value <= bound {
		return int64(value), nil
	}
	_, err := c.client.Decrement(c.key, min(value-bound, by))
	if err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
		return 0, err
	}
	return backends.MaxValue, nil
}
