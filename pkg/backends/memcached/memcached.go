// Package memcached keeps cells in memcached, through gomemcache.
//
// It promises that the operations of a batch on one cell are atomic, except that an operation which
// makes or settles a reservation is applied by itself. An unconditional charge is memcached's own
// incr, and everything else is a compare-and-swap around backends.State.Step. A compare-and-swap is
// tried a bounded number of times; then the operations have an error, and are never allowed
// silently. Op.Now decides whether a cell has ended; the expiry of its item only frees memory. A
// batch that is decided together over several cells is looked at first, then charged cell by cell
// (package split) and given back when an operation does not fit after all: other callers may be
// refused for a moment, nobody is admitted beyond a limit.
//
// The record of a reservation is an item beside its cell, and memcached writes one item at a time. So the item
// of the cell has the last few records, too: its compare-and-swap makes the reservation or settles it, and a
// later caller on the cell makes the second write if its writer has not. The
// cells of several windows of the clock share records: an ID that two callers use at the same moment in two
// windows may be charged in both.
//
// Each server has a breaker, connections and goroutines of its own, all bounded.
// While a server does not answer, one call at a time probes it and the other calls
// to it fail at once, so it delays no call to another server and calls do not pile
// up.
//
// The package leaves failure policies and the merging of operations on hot
// keys to decorators. memcached may evict live cells when its memory is used up;
// the operator has to give it enough.
package memcached

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/cespare/xxhash/v2"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/remote"
	"example.org/rls/pkg/backends/split"
)

const (
	defaultTimeout      = 500 * time.Millisecond
	defaultMaxIdleConns = 64
	// minWorkers is how many calls to one server may be on the wire at once,
	// or Options.MaxIdleConns if that is more.
	minWorkers = 64
)

// Options configures a Store. Numbers are not negative. The fields with a tag env are settings of the
// process.
type Options struct {
	// Servers are host:port pairs and paths of unix sockets. A cell lives on
	// one of them, chosen by rendezvous hashing: the order does not matter,
	// and a server that is added or removed moves only its own part of the
	// cells. Exactly one of Servers and SRV is set.
	Servers []string `name:"host-port" env:"HOST_PORT" help:"Servers: host:port or Unix sockets, with commas."`
	// SRV is the name of a DNS SRV record that lists the servers.
	SRV string `env:"SRV" help:"DNS SRV record, in place of MEMCACHE_HOST_PORT."`
	// SRVRefresh is the time between two look-ups of SRV. With 0 look-ups end
	// after the first that succeeds. A failed look-up keeps the last good list.
	SRVRefresh time.Duration `env:"SRV_REFRESH" default:"0s" min:"0s" help:"How often MEMCACHE_SRV is resolved again; 0 is once."`
	// Resolver looks up SRV and host names; nil is Go's default.
	Resolver *net.Resolver `kong:"-"`

	// TLS returns the client's TLS configuration for a new connection; nil
	// connects in plain text. ServerName defaults to the host.
	TLS func() *tls.Config `kong:"-"`
	// MaxIdleConns is how many idle connections are kept per server; 0 is 64. As many
	// calls, but at least 64, may be on the wire to a server.
	MaxIdleConns int `env:"MAX_IDLE_CONNS" default:"64" min:"1" max:"10000" help:"Idle connections kept to each server."`
	// Timeout bounds an Apply, and each call on the wire with the connecting before
	// it, which may outlive the Apply. 0 is 500 ms. An answer that does not come within
	// Watch.SlowAfter counts as missing, too.
	Timeout time.Duration `env:"TIMEOUT" default:"500ms" min:"1ms" max:"1h" help:"Longest wait for connection or answer."`
	// ExpirationJitter is the upper bound of a random time for which memcached keeps a
	// cell of a fixed window beyond its end, so that cells do not all expire at once.
	ExpirationJitter time.Duration `kong:"-"`

	// Watch makes the breakers of the servers; nil makes them with default options.
	Watch *breaker.Watch `kong:"-"`
}

// Store keeps cells in memcached.
type Store struct {
	servers *servers
	timeout time.Duration
}

var _ backends.Spread = (*Store)(nil)

// Open returns a store. It fails only on invalid options: it does not wait for a
// server or for DNS. Ping tells whether a server answers.
func Open(o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("memcached: %w", err)
	}
	servers := newServers(o.Servers, func(address string) *server { return openServer(address, &o) })
	if o.SRV != "" {
		servers.follow(o.SRV, o.SRVRefresh, o.Resolver)
	}
	return &Store{servers: servers, timeout: o.Timeout}, nil
}

// openServer is the server at that address: host:port or the path of a unix socket.
func openServer(address string, o *Options) *server {
	silence := min(o.Timeout, o.Watch.SlowAfter())
	s := &server{
		network: "tcp", address: address, seed: xxhash.Sum64String(address),
		// TLS takes both sides some work and up to two round trips: it may last longer than the network.
		dialer: remote.Dialer{
			Dialer: net.Dialer{Resolver: o.Resolver, Timeout: 2 * silence}, TLS: o.TLS, Handshake: o.Timeout,
		},
		workers: newWorkers(max(minWorkers, o.MaxIdleConns)),
		breaker: o.Watch.Server(address),
		timeout: o.Timeout, silence: silence, jitter: o.ExpirationJitter,
	}
	if strings.Contains(address, "/") {
		s.network = "unix"
	}
	s.client = memcache.NewFromSelector(s)
	s.client.Timeout = o.Timeout
	s.client.MaxIdleConns = o.MaxIdleConns
	s.client.DialContext = s.dial
	return s
}

// complete fills in defaults and reports every wrong list of servers. The settings have the
// least values of numbers.
func (o *Options) complete() error {
	var errs []error
	if (len(o.Servers) == 0) == (o.SRV == "") {
		errs = append(errs, errors.New("set either Servers or SRV"))
	}
	for _, s := range o.Servers {
		if _, err := remote.HostPort(s, ""); err != nil && !strings.Contains(s, "/") {
			errs = append(errs, fmt.Errorf("server %w, nor the path of a unix socket", err))
		}
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.MaxIdleConns = cmp.Or(o.MaxIdleConns, defaultMaxIdleConns)
	o.Watch = cmp.Or(o.Watch, &breaker.Watch{})
	return errors.Join(errs...)
}

// Now is the time in µs since the epoch on this process' clock: memcached's own
// clock has a resolution of a second.
func (s *Store) Now() int64 { return time.Now().UnixMicro() }

// Apply applies b. The package comment says which parts of it are atomic.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	return s.ApplyEach(ctx, b, func(*backends.Op) {})
}

// ApplyEach implements backends.Spread.
func (s *Store) ApplyEach(ctx context.Context, b *backends.Batch, decided func(*backends.Op)) error {
	ctx, cancel := backends.Within(ctx, s.timeout)
	defer cancel()
	servers, err := s.known()
	if err != nil {
		b.Each(decided)
		return b.Fail(err)
	}
	places := split.Places{
		Of:       servers.place,
		Looks:    true,
		GiveBack: s.timeout,
		Ask: func(ctx context.Context, parts []*split.Part, answered func(*split.Part)) {
			split.AtOnce(byServer(parts), func(parts []*split.Part) {
				apply(ctx, servers[parts[0].Server], parts)
				for _, p := range parts {
					answered(p)
				}
			})
		},
	}
	return places.ApplyEach(ctx, b, decided)
}

// known is the list of servers, or an error if it is empty.
func (s *Store) known() (serverList, error) {
	servers := s.servers.now()
	if len(servers) == 0 {
		return nil, fmt.Errorf("memcached: %w: no server is known", backends.ErrUnavailable)
	}
	return servers, nil
}

// Ping succeeds when one server answers: the store can then decide for the
// keys of that server. It asks all servers at once.
func (s *Store) Ping(ctx context.Context) error {
	servers, err := s.known()
	if err != nil {
		return err
	}
	ctx, cancel := backends.Within(ctx, s.timeout)
	defer cancel()
	return split.FirstOf(servers, func(s *server) error { return s.ping(ctx) })
}

// Close ends the look-ups, the workers and the connections, after the calls on
// the wire have ended or timed out.
func (s *Store) Close() error { return s.servers.close() }
