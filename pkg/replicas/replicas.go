// Package replicas counts the processes that decide the same limits, and finds their
// addresses.
package replicas

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"example.org/rls/internal/pace"
)

const (
	lookUpEvery   = 10 * time.Second
	lookUpTimeout = 5 * time.Second
)

// LookUp finds the addresses of a host; network is "ip4" or "ip6".
// [net.Resolver.LookupNetIP] is one.
type LookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)

// Replicas is the number of processes that decide the same limits: a fixed number,
// or the number of addresses of a name in DNS, such as a headless Service. The zero Replicas is one process.
// It is safe for concurrent use.
type Replicas struct {
	name   string
	lookUp LookUp
	log    *slog.Logger
	fixed  int                          // until a look-up finds addresses
	found  atomic.Pointer[[]netip.Addr] // nil until then
}

// New returns n replicas until lookUp finds addresses of the name. With an
// empty name it stays at n.
func New(n int, name string, lookUp LookUp, log *slog.Logger) *Replicas {
	return &Replicas{name: name, lookUp: lookUp, log: log, fixed: n}
}

// Count is the number of replicas, at least 1.
func (r *Replicas) Count() int { return cmp.Or(len(r.Addresses()), r.fixed, 1) }

// Addresses are the different addresses of the name in their order, none before a look-up
// has found some. Of a name with addresses of both kinds it has those of the kind with more
// addresses, and the IPv4 ones if it has as many of both.
func (r *Replicas) Addresses() []netip.Addr {
	if found := r.found.Load(); found != nil {
		return *found
	}
	return nil
}

// Run looks the name up at once and then every 10 s, until ctx ends. When a
// look-up fails or finds no address, Addresses and Count stay as they are, and the first
// of a row of such look-ups is logged.
func (r *Replicas) Run(ctx context.Context) error {
	if r.name == "" {
		return nil
	}
	failing := false
	for range pace.Every(ctx, lookUpEvery) {
		found, err := find(ctx, r.lookUp, r.name)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			r.found.Store(&found)
		case !failing:
			r.log.Warn("cannot look up the replicas; their last addresses stay", "name", r.name, "replicas", r.Count(), "error", err)
		}
		failing = err != nil
	}
	return nil
}

// find looks a host up, within 5 s. The result is that of [Replicas.Addresses], and has at
// least one address: a replica with an IPv4 and an IPv6 address counts once.
func find(ctx context.Context, lookUp LookUp, host string) (most []netip.Addr, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	for _, network := range []string{"ip4", "ip6"} {
		found, failed := lookUp(ctx, network, host)
		err = errors.Join(err, failed)
		for i := range found {
			found[i] = found[i].Unmap()
		}
		slices.SortFunc(found, netip.Addr.Compare)
		if found = slices.Compact(found); len(found) > len(most) {
			most = found
		}
	}
	switch {
	case len(most) > 0:
		return most, nil
	case err == nil:
		err = errors.New("the name has no address")
	}
	return nil, err
}
