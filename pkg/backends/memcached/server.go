package memcached

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
)

// server is one memcached: the connections to it, the workers that make calls,
// and whether it answers. A server that does not answer takes up its own
// workers only, so calls to the other servers go on.
type server struct {
	network, address string
	seed             uint64 // of the rendezvous hash
	client           *memcache.Client
	workers          *workers
	timeout          time.Duration // of a call on the wire
	jitter           time.Duration

	// failures counts calls that broke off. A connection that was opened
	// before the last of them is not used again.
	failures atomic.Int64
	// away holds the error of the last call if that call broke off; nil while
	// the server answers.
	away atomic.Pointer[error]
	// probing is set while one call tries a server that is away.
	probing atomic.Bool
	breaker *breaker.Breaker // tells the operator
}

func openServer(address string, o *Options) *server {
	s := &server{
		network: "tcp", address: address, seed: hash(address),
		workers: newWorkers(max(minWorkers, o.MaxIdleConns)),
		timeout: o.Timeout, jitter: o.ExpirationJitter,
		breaker: o.Watch.Server(address),
	}
	if strings.Contains(address, "/") {
		s.network = "unix"
	}
	s.client = memcache.NewFromSelector(only{s})
	s.client.Timeout = o.Timeout
	s.client.MaxIdleConns = o.MaxIdleConns
	s.client.DialContext = (&dialer{server: s, resolver: o.Resolver, tls: o.TLS}).dial
	return s
}

// Network and String make the server a net.Addr. Its name is resolved for each
// connection, so that a host may change its address.
func (s *server) Network() string { return s.network }
func (s *server) String() string  { return s.address }

// only tells gomemcache that all keys are on one server.
type only struct{ server *server }

func (o only) PickServer(string) (net.Addr, error) { return o.server, nil }
func (o only) Each(f func(net.Addr) error) error   { return f(o.server) }

var _ memcache.ServerSelector = only{}

// apply applies a batch whose cells are all on this server. Its error is in
// the replies.
func (s *server) apply(ctx context.Context, b *backends.Batch) {
	j := newJob(s, b)
	if err := s.call(ctx, j.run); err != nil {
		_ = b.Fail(err)
		return
	}
	copy(b.Replies, j.Replies)
	b.Refused = j.Refused
}

// call has a worker call run and returns its error. When ctx ends, only the wait
// ends: a call on the wire goes on, and a call that has not begun is never made.
// While the server is away, one call at a time tries it; the other calls fail at
// once with the error of the call that broke off. Errors wrap
// backends.ErrUnavailable and name the server.
func (s *server) call(ctx context.Context, run func(context.Context) error) error {
	if err := s.try(ctx, run); err != nil {
		return fmt.Errorf("memcached %s: %w: %w", s.address, backends.ErrUnavailable, err)
	}
	return nil
}

func (s *server) try(ctx context.Context, run func(context.Context) error) error {
	if err := s.refusal(); err != nil {
		return err
	}
	done := make(chan error, 1)
	if err := s.workers.submit(ctx, func() { done <- s.guarded(ctx, run) }); err != nil {
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

// refusal is the error for a call while another call tries the server.
func (s *server) refusal() error {
	if away := s.away.Load(); away != nil && s.probing.Load() {
		return fmt.Errorf("away: %w", *away)
	}
	return nil
}

// guarded calls run unless the server is away and another call tries it.
func (s *server) guarded(ctx context.Context, run func(context.Context) error) error {
	if away := s.away.Load(); away != nil {
		if !s.probing.CompareAndSwap(false, true) {
			return fmt.Errorf("away: %w", *away)
		}
		defer s.probing.Store(false)
	}
	return run(ctx)
}

// answered notes the outcome of a call on the wire. It returns err, with advice
// if a wrong setting causes it.
func (s *server) answered(err error) error {
	if err == nil {
		if s.away.Load() != nil {
			s.away.Store(nil)
		}
		s.tell(nil)
		return nil
	}
	var plain tls.RecordHeaderError
	if errors.As(err, &plain) {
		err = fmt.Errorf("the server does not speak TLS on this port (use its port for TLS, or no TLS): %w", err)
	}
	s.failures.Add(1)
	s.away.Store(&err)
	s.tell(err)
	return err
}

// tell tells the operator the outcome of a call on the wire.
func (s *server) tell(err error) {
	if s.breaker.Enter() == nil {
		s.breaker.Leave(0, err)
	}
}

// ping asks the server for its version.
func (s *server) ping(ctx context.Context) error {
	return s.call(ctx, func(context.Context) error { return s.client.Ping() })
}

// close ends the workers and the connections after the calls on the wire have
// ended or timed out.
func (s *server) close() error {
	s.workers.stop()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("memcached %s: close connections: %w", s.address, err)
	}
	return nil
}

var (
	errBusy   = errors.New("too many calls are waiting for their turn")
	errClosed = errors.New("the store is closed")
)
