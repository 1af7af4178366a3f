// Package memcached keeps cells in memcached, through gomemcache.
//
// It promises that each operation is atomic: a charge without a condition is
// memcached's own incr, everything else is a compare-and-swap around
// backends.Cell.Step or backends.Log.Step, tried again a bounded number of
// times and then an error, never a silent allow. Decisions follow Op.Now; that
// memcached forgets a cell only frees memory. An all-or-nothing batch is
// applied cell by cell and given back when an operation turns out not to fit:
// others may be refused for a moment, nobody is admitted beyond a limit.
//
// Nothing piles up behind a server that does not answer: calls on the wire,
// their connections and the calls that wait for their turn are bounded, and
// what is beyond the bound is refused at once.
//
// It leaves failure policies and the merging of operations on hot keys to
// decorators. memcached may evict live cells when it is full; how much memory
// it has is its operator's business.
package memcached

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
)

const (
	defaultTimeout      = 500 * time.Millisecond
	defaultMaxIdleConns = 64
	// minWorkers bounds the calls on the wire, unless more connections than
	// that may be kept.
	minWorkers = 64
)

// Options configures a Store.
type Options struct {
	// Servers are host:port pairs and paths of unix sockets. A cell lives on
	// one of them, chosen by rendezvous hashing: the order does not matter,
	// and a server that is added or removed moves only its own share of the
	// cells. Exactly one of Servers and SRV is set.
	Servers []string
	// SRV is the name of a DNS SRV record that lists the servers.
	SRV string
	// SRVRefresh is the time between two look-ups of SRV; 0 looks it up until
	// it was found once. A failed look-up keeps the last good list.
	SRVRefresh time.Duration
	// Resolver looks up SRV and host names; nil is net.DefaultResolver.
	Resolver *net.Resolver

	// TLS returns the client's side of TLS for a new connection; nil connects
	// in plain text. ServerName defaults to the host.
	TLS func() *tls.Config
	// Timeout bounds an Apply, and each call on the wire, which may begin
	// within an Apply and outlive it. 0 is 500 ms.
	Timeout time.Duration
	// MaxIdleConns is how many idle connections are kept per server; 0 is 64.
	// Calls on the wire are bounded by the same number or 64, whichever is
	// higher.
	MaxIdleConns int
	// ExpirationJitter is the upper bound of a random time for which a cell of
	// a fixed window is kept beyond its end, so that cells do not all expire
	// at once. It never changes a decision.
	ExpirationJitter time.Duration

	// Now is the clock in µs since the epoch; nil is the system's.
	Now func() int64
}

// Store keeps cells in memcached.
type Store struct {
	client  *memcache.Client
	servers *servers
	workers *workers
	timeout time.Duration
	jitter  time.Duration
	now     func() int64
}

var _ backends.Store = (*Store)(nil)

// Open returns a store. It fails only on options that cannot be right: it does
// not wait for a server or for the DNS, Ping tells whether they are there.
func Open(o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("memcached: %w", err)
	}
	servers := newServers(o.Servers)
	client := memcache.NewFromSelector(servers)
	client.Timeout = o.Timeout
	client.MaxIdleConns = o.MaxIdleConns
	client.DialContext = (&dialer{servers: servers, resolver: o.Resolver, tls: o.TLS, timeout: o.Timeout}).dial
	if o.SRV != "" {
		servers.removed = client.Close // closes idle connections only
		servers.follow(o.SRV, o.SRVRefresh, o.Resolver)
	}
	return &Store{
		client:  client,
		servers: servers,
		workers: startWorkers(max(minWorkers, o.MaxIdleConns)),
		timeout: o.Timeout,
		jitter:  o.ExpirationJitter,
		now:     o.Now,
	}, nil
}

// complete fills in defaults and reports every option that cannot be right.
func (o *Options) complete() error {
	var errs []error
	if (len(o.Servers) == 0) == (o.SRV == "") {
		errs = append(errs, errors.New("set either Servers or SRV"))
	}
	for _, s := range o.Servers {
		errs = append(errs, checkServer(s))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"SRVRefresh", o.SRVRefresh}, {"Timeout", o.Timeout}, {"ExpirationJitter", o.ExpirationJitter}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %v: must not be negative", d.name, d.value))
		}
	}
	if o.MaxIdleConns < 0 {
		errs = append(errs, fmt.Errorf("MaxIdleConns is %d: must not be negative", o.MaxIdleConns))
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxIdleConns == 0 {
		o.MaxIdleConns = defaultMaxIdleConns
	}
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixMicro() }
	}
	return errors.Join(errs...)
}

// Now is the time in µs since the epoch on this process' clock: memcached has
// none that is worth asking for.
func (s *Store) Now() int64 { return s.now() }

// Apply applies b. See the package comment for what is atomic.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	b.Refused = false
	if len(b.Ops) == 0 {
		return nil
	}
	j := newJob(s, b)
	if err := s.call(ctx, j.run); err != nil {
		return fmt.Errorf("memcached: apply %d operations: %w: %w", len(b.Ops), backends.ErrUnavailable, err)
	}
	copy(b.Replies, j.replies)
	b.Refused = j.refused
	return nil
}

// Ping asks every server for its version, all at once.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.call(ctx, func(context.Context) error { return s.client.Ping() }); err != nil {
		return fmt.Errorf("memcached: ping: %w: %w", backends.ErrUnavailable, err)
	}
	return nil
}

// call has a worker call run. When ctx ends, after the store's
// timeout at the latest, only the wait ends: what is on the wire goes on, and
// what has not begun never will.
func (s *Store) call(ctx context.Context, run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	done := make(chan error, 1)
	if err := s.workers.submit(ctx, func() { done <- run(ctx) }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.workers.stopped:
		return errClosed
	}
}

// Close ends what runs in the background and closes the connections, after the
// calls on the wire have ended or timed out.
func (s *Store) Close() error {
	s.servers.stop()
	s.workers.stop()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("memcached: close connections: %w", err)
	}
	return nil
}
