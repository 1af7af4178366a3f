// Package replicas counts the processes that decide the same limits.
package replicas

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

const (
	lookUpEvery   = 10 * time.Second
	lookUpTimeout = 5 * time.Second
)

// LookUp finds the addresses of a host; network is "ip4" or "ip6".
// [net.Resolver.LookupNetIP] is one.
type LookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

// Replicas is the number of processes that decide the same limits: a fixed number,
// or the number of addresses of a name in DNS, such as a headless Service. It is
// safe for concurrent use.
type Replicas struct {
	name   string
	lookUp LookUp
	log    *slog.Logger
	count  atomic.Int64
}

// New returns n replicas, at least 1, until lookUp finds addresses of the name. With an
// empty name it stays at n.
func New(n int, name string, lookUp LookUp, log *slog.Logger) *Replicas {
	r := &Replicas{name: name, lookUp: lookUp, log: log}
	r.count.Store(int64(max(n, 1)))
	return r
}

// Count is the number of replicas, at least 1. Of a nil Replicas it is 1.
func (r *Replicas) Count() int {
	if r == nil {
		return 1
	}
	return int(r.count.Load())
}

// Run looks the name up at once and then every 10 s, until ctx ends. When a
// look-up fails or finds no address, Count stays as it is, and the first of a row
// of such look-ups is logged.
func (r *Replicas) Run(ctx context.Context) error {
	if r == nil || r.name == "" {
		return nil
	}
	tick := time.NewTicker(lookUpEvery)
	defer tick.Stop()
	for failing := false; ; {
		n, err := r.addresses(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			r.count.Store(int64(n))
		case !failing:
			r.log.Warn("cannot look up the replicas; their last number stays", "name", r.name, "replicas", r.Count(), "error", err)
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// addresses is the number of addresses of the name. A replica with an IPv4 and an
// IPv6 address counts once.
func (r *Replicas) addresses(ctx context.Context) (most int, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	for _, network := range []string{"ip4", "ip6"} {
		found, failed := r.lookUp(ctx, network, r.name)
		err = errors.Join(err, failed)
		slices.SortFunc(found, netip.Addr.Compare)
		most = max(most, len(slices.Compact(found)))
	}
	switch {
	case most > 0:
		return most, nil
	case err == nil:
		err = errors.New("the name has no address")
	}
	return 0, err
}
