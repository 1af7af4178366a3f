// Package stack wraps the stores that hold cells in decorators, and is the only
// place that knows the order of the decorators. With the Watch that serve gives
// it (tracing and metrics) the stacks are:
//
//	denycache ▶ lease ▶ tracing ▶ metrics ▶ deadline ▶ combine ▶ redis
//	denycache ▶ lease ▶ tracing ▶ metrics ▶ deadline ▶ split(combine ▶ redis, combine ▶ redis)
//	denycache ▶ lease ▶ tracing ▶ metrics ▶ deadline ▶ combine ▶ memcached
//	tracing ▶ metrics ▶ memory
//
// The cache is outermost, so that metrics and traces show only the calls that
// reach a server; leases lie above them for the same reason. One deadline bounds a
// call to both stores. Operations are merged below split, so that a key of one
// store does not wait for the other store.
package stack

import (
	"errors"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/combine"
	"example.org/rls/pkg/backends/deadline"
	"example.org/rls/pkg/backends/denycache"
	"example.org/rls/pkg/backends/lease"
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
	// LocalCache is the size in bytes of denycache, which remembers full cells;
	// 0 builds no cache. A Main in this process gets neither a cache nor leases.
	LocalCache int
	// Watch, if not nil, wraps the store below the local cache and leases, to see
	// the calls that they do not answer: tracing, metrics.
	Watch func(backends.Store) backends.Store
	// Leases, if not nil, is called with the store that leases hits, if there is
	// one.
	Leases func(*lease.Store)
}

// Build returns the store that o describes. It owns the stores in o: Close of
// the result closes them, and so does Build itself when it fails.
func Build(o Options) (backends.Store, error) {
	store, err := o.build()
	if err != nil {
		for _, t := range []Tier{o.Main, o.PerSecond} {
			if t.Store != nil {
				err = errors.Join(err, t.Store.Close())
			}
		}
		return nil, err
	}
	return store, nil
}

func (o *Options) build() (store backends.Store, err error) {
	remote := o.Main.Timeout > 0
	merged := o.Main.Store
	if store = merged; remote {
		if merged, store, err = o.remote(); err != nil {
			return nil, err
		}
	}
	if o.Watch != nil {
		store = o.Watch(store)
	}
	if !remote {
		return store, nil
	}
	leased, err := lease.New(store, lease.Options{Background: merged, Timeout: max(o.Main.Timeout, o.PerSecond.Timeout)})
	if err != nil {
		return nil, err
	}
	if o.Leases != nil {
		o.Leases(leased)
	}
	if o.LocalCache > 0 {
		return denycache.New(leased, o.LocalCache)
	}
	return leased, nil
}

// remote is the part of the stack down to the stores on servers: with deadline for
// requests, and without it for background work, whose answers may come later than a
// request can wait.
func (o *Options) remote() (merged, bounded backends.Store, err error) {
	longest := max(o.Main.Timeout, o.PerSecond.Timeout)
	main, err := combine.New(o.Main.Store, o.Main.Timeout)
	if err != nil {
		return nil, nil, err
	}
	wait := longest
	if o.Decision > 0 {
		wait = min(wait, o.Decision)
	}
	if o.PerSecond.Store == nil {
		bounded, err = deadline.New(main, wait)
		return main, bounded, err
	}
	perSecond, err := combine.New(o.PerSecond.Store, o.PerSecond.Timeout)
	if err != nil {
		return nil, nil, err
	}
	both, err := split.New(main, perSecond, longest)
	if err != nil {
		return nil, nil, err
	}
	bounded, err = deadline.New(both, wait)
	return both, bounded, err
}
