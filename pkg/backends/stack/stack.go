// Package stack wraps the stores that hold cells in decorators, two of which are its own ([Deadline],
// [Combine]), and is the only place that knows the order of the decorators. With the Watch that serve gives
// it (tracing and metrics) the stacks are:
//
//	near ▶ tracing ▶ metrics ▶ deadline ▶ combine ▶ redis
//	near ▶ tracing ▶ metrics ▶ deadline ▶ split(combine ▶ redis, combine ▶ redis)
//	near ▶ tracing ▶ metrics ▶ deadline ▶ combine ▶ memcached
//	tracing ▶ metrics ▶ memory
//
// The near cache is outermost, so that metrics and traces show only the calls that
// reach a server. One deadline bounds a call to both stores. Operations are merged
// below split, so that a key of one store does not wait for the other store.
package stack

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/backends/split"
)

// Tier is a store that holds cells.
type Tier struct {
	Store backends.Store
	// Timeout is the longest wait for the store's servers. 0 means that the store
	// is in this process and never waits.
	Timeout time.Duration
}

// Options has the stores and decorators of a stack.
type Options struct {
	Main Tier
	// PerSecond, if its Store is set, holds the cells of limits per second in
	// place of Main. Main and PerSecond then both need a Timeout above 0.
	PerSecond Tier
	// Decision is the longest wait of a decision for servers; 0 leaves it to the
	// timeouts of the tiers and to callers' deadlines.
	Decision time.Duration
	// LocalCache is the size in bytes of the memory for cells that are full and so are
	// denied without a call, at least minLocalCache; 0 denies none. A Main in this
	// process has no near cache.
	LocalCache int
	// Replicas is the number of processes that divide a limit among them while the
	// servers are away; nil stands for 1.
	Replicas func() int
	// Watch, if not nil, wraps the store below the near cache, to see the calls that the
	// cache does not answer: tracing, metrics.
	Watch func(backends.Store) backends.Store
	// Near, if not nil, is called with the near cache, if there is one.
	Near func(*near.Store)
	Log  *slog.Logger // nil is none
}

const (
	// cellBytes is the most that a remembered cell takes: its name and some 170 bytes.
	cellBytes = 320
	// minLocalCache is the least LocalCache: envoyproxy/ratelimit's cache takes no less.
	minLocalCache = 512 << 10
)

// Build returns the store that o describes. It owns the stores in o: Close of
// the result closes them, and so does Build itself when it fails.
func Build(o Options) (backends.Store, error) {
	if second := o.PerSecond; second.Store != nil && min(o.Main.Timeout, second.Timeout) <= 0 {
		err := fmt.Errorf("stack: two stores with timeouts of %v and %v: both must be above 0", o.Main.Timeout, second.Timeout)
		return nil, errors.Join(err, o.Main.Store.Close(), second.Store.Close())
	}
	remote := o.Main.Timeout > 0
	merged, store := o.Main.Store, o.Main.Store
	if remote {
		merged, store = o.remote()
	}
	if o.Watch != nil {
		store = o.Watch(store)
	}
	if !remote {
		return store, nil
	}
	cells := near.DefaultCells
	if o.LocalCache > 0 {
		cells += max(o.LocalCache, minLocalCache) / cellBytes
	}
	cache := near.New(store, near.Options{
		Background: merged, Timeout: max(o.Main.Timeout, o.PerSecond.Timeout),
		Cells: cells, Deny: o.LocalCache > 0, Replicas: o.Replicas, Log: o.Log,
	})
	if o.Near != nil {
		o.Near(cache)
	}
	return cache, nil
}

// remote is the part of the stack down to the stores on servers: with deadline for
// requests, and without it for background work, whose answers may come later than a
// request can wait.
func (o *Options) remote() (merged, bounded backends.Store) {
	longest := max(o.Main.Timeout, o.PerSecond.Timeout)
	merged = Combine(o.Main.Store, o.Main.Timeout)
	if o.PerSecond.Store != nil {
		merged = split.New(merged, Combine(o.PerSecond.Store, o.PerSecond.Timeout), longest)
	}
	wait := longest
	if o.Decision > 0 {
		wait = min(wait, o.Decision)
	}
	return merged, Deadline(merged, wait)
}
