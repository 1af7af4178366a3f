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
	keys           []string // of the items to read: key, and that of a reservation's record; none for incr and decr
	look           bool     // see split.Part
	then           *cell    // the operations after these on the same cell
	err            error
}

// begin makes c the cell of p.
func (c *cell) begin(s *server, p *split.Part) {
	*c = cell{server: s, key: p.Cell, look: p.Look, Batch: backends.Batch{
		Ops: slices.Clone(p.Ops), Replies: make([]backends.Reply, len(p.Ops)), AllOrNothing: p.AllOrNothing}}
	if len(c.Ops) == 1 {
		c.Ops[0].Group = 0
	}
	switch {
	case p.Alone && c.Ops[0].Identified(): // else only the cell is read
		c.keys = []string{c.key, StoredKey(c.Ops[0].Hold.RecordKey())}
	case !c.counts():
		c.keys = []string{c.key}
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
func (c *cell) again(ctx context.Context, found items, keys []string, turn func(found items) error) (err error) {
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
		if err = turn(found); !errors.Is(err, errRaced) {
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
func (c *cell) swap(found items) error {
	r, err := decode(&c.Ops[0], found[c.key])
	if err != nil {
		return foreign(c.key, err)
	}
	if c.look {
		for i := range c.Ops {
			found, tried := r.Clone(), r.Clone()
			for k := range i {
				if c.FitsBeside(k, i) {
					tried.StepHold(&c.Ops[k], backends.Record{})
				}
			}
			c.Replies[i] = tried.Probe(&c.Ops[i], backends.Record{})
			c.Settle(i, found.Probe(&c.Ops[i], backends.Record{}))
		}
		return nil
	}
	step := func(_ int, op *backends.Op) backends.Reply {
		_, reply := r.StepHold(op, backends.Record{})
		return reply
	}
	var before []backends.State // each operation, if they depend on each other
	c.ApplyTogether(func(i int) backends.Reply {
		if c.Together() {
			before = append(before, r.Clone())
		}
		return step(i, &c.Ops[i])
	}, func(first, _ int) { r.State = before[first].Clone() }, step)
	return c.store(r, found)
}

// store writes the cell as r, unless it was found so, if nobody has changed it since it was found.
func (c *cell) store(r *record, found items) error {
	item, was, until, jitter := r.encode(c.key), found[c.key], r.until(), time.Duration(0)
	if was == nil && until == 0 {
		return nil
	}
	if was != nil && bytes.Equal(bytes.TrimRight(item.Value, spaces), bytes.TrimRight(was.Value, spaces)) {
		return nil
	}
	if isNumber(r.op) {
		jitter = c.jitter
	}
	if item.Expiration = expiration(until-r.op.Now, jitter, time.Now()); until == 0 {
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

// reserve applies the operation of c, which makes or settles a reservation, to the cell and the
// record as they were found.
//
// The write of the cell is the commit: it has the new version of the record, too. So whoever writes the cell
// next knows the version even if the item of the record was never written. When the cell has no room for more,
// the versions that it has are written to their items before. The record is read after the cell, so it is as new as
// the versions that the cell had before.
func (c *cell) reserve(ctx context.Context, found items) error {
	op, key := &c.Ops[0], c.keys[1]
	r, err := decode(op, found[c.key])
	if err != nil {
		return foreign(c.key, err)
	}
	last, err := decodeDated(key, found[key])
	if err != nil {
		return err
	}
	at := slices.IndexFunc(r.last, func(d dated) bool { return d.key == key })
	if at >= 0 && r.last[at].date > last.date {
		last = r.last[at]
	}
	rec := last.Record
	if rec.Number == 0 && !rec.Settled { // cancelled
		rec = backends.Record{}
	}
	if c.look {
		c.Replies[0] = r.Probe(op, rec)
		return nil
	}
	after, reply := r.StepHold(op, rec)
	if c.Replies[0] = reply; after == rec {
		return c.store(r, found)
	}
	if after == (backends.Record{}) {
		after.Ends = rec.Ends
	}
	if at >= 0 {
		r.last = slices.Delete(r.last, at, at+1)
	} else if len(r.last) >= maxLast {
		if err = c.complete(ctx, r.last, nil); err != nil {
			return err
		}
		r.last = nil
	}
	made := dated{after, key, max(op.Now, last.date+1)}
	r.last = append(r.last, made)
	if err = c.store(r, found); err != nil {
		return err
	}
	return c.complete(ctx, []dated{made}, found)
}

// complete writes versions to their items, unless these have the same or later ones. found has the items as
// they were read; nil has them read.
func (c *cell) complete(ctx context.Context, versions []dated, found items) (err error) {
	if found == nil {
		var keys []string
		for _, d := range versions {
			keys = append(keys, d.key)
		}
		if found, err = c.get(keys); err != nil {
			return err
		}
	}
	for _, d := range versions {
		err = errors.Join(err, c.again(ctx, found, []string{d.key}, func(found items) error {
			is, err := decodeDated(d.key, found[d.key])
			if err != nil || is.date >= d.date {
				return err
			}
			left := expiration(d.Ends-c.Ops[0].Now, 0, time.Now())
			return c.put(&memcache.Item{Key: d.key, Value: d.append(nil), Expiration: left}, found)
		}))
	}
	return err
}
