package memcached

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/remote"
)

// server is one memcached: the connections to it, the workers that make calls,
// and its breaker. A server that does not answer takes up its own workers only, so
// calls to the other servers go on.
type server struct {
	network, address string
	seed             uint64 // of the rendezvous hash
	dialer           remote.Dialer
	client           *memcache.Client
	workers          *workers
	breaker          *breaker.Breaker
	timeout          time.Duration // of connecting, and of a call on the wire
	silence          time.Duration // the longest wait for an answer
	jitter           time.Duration

	// timeouts counts calls that were not answered in time. A connection that was
	// opened before the last of them is not used again.
	timeouts atomic.Int64
}

// Network and String make the server a net.Addr. Its name is resolved for each
// connection, so that a host may change its address.
func (s *server) Network() string { return s.network }
func (s *server) String() string  { return s.address }

// PickServer and Each make the server a memcache.ServerSelector, for which all keys are
// on this server.
func (s *server) PickServer(string) (net.Addr, error) { return s, nil }
func (s *server) Each(f func(net.Addr) error) error   { return f(s) }

// unavailable is err as one that wraps backends.ErrUnavailable and names the server.
func (s *server) unavailable(err error) error {
	if errors.Is(err, backends.ErrUnavailable) { // the breaker's, which names the server
		return fmt.Errorf("memcached: %w", err)
	}
	return fmt.Errorf("memcached %s: %w: %w", s.address, backends.ErrUnavailable, err)
}

// call has a worker call run and returns its error. When ctx ends, only the wait ends: a call
// on the wire goes on, and a call that has not begun is never made. While the server is
// away, calls fail at once, apart from one probe at a time.
func (s *server) call(ctx context.Context, run func(context.Context) error) error {
	call, err := s.breaker.Allow()
	if err != nil {
		return backends.NotSent(err)
	}
	var result error
	done := make(chan struct{})
	if err := s.workers.run(ctx, func() { defer close(done); result = s.attempt(ctx, call, run) }, call.Probe); err != nil {
		call.Done(0, breaker.ErrNotMade)
		return backends.NotSent(err)
	}
	if err := call.Wait(ctx, done); err != nil {
		return err
	}
	return result
}

// attempt calls run, unless the server went away while the call waited for a worker, and
// tells the breaker the outcome.
func (s *server) attempt(ctx context.Context, call breaker.Call, run func(context.Context) error) error {
	if away := s.breaker.Away(); away != nil && !call.Probe {
		call.Done(0, breaker.ErrNotMade)
		return backends.NotSent(away)
	}
	start := time.Now()
	err := run(ctx)
	var unanswered noAnswer
	if errors.As(err, &unanswered) {
		call.Done(time.Since(start), unanswered)
	} else {
		// No answer came later than silence, so none was slow: a call that took longer has
		// waited for other writers.
		call.Done(min(time.Since(start), s.silence), nil)
	}
	return err
}

// noAnswer is the error of a call on the wire that broke off.
type noAnswer struct{ error }

func (e noAnswer) Unwrap() error { return e.error }

// brokeOff notes that a call on the wire broke off, and returns its error. A connection that was closed or reset says nothing
// about the others: they are looked at before they are used.
func (s *server) brokeOff(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		s.timeouts.Add(1)
	}
	return noAnswer{err}
}

// items are items of the server by their keys, as a request has read them.
type items map[string]*memcache.Item

// get reads items with one request.
func (s *server) get(keys []string) (items, error) {
	switch len(keys) {
	case 0:
		return items{}, nil
	case 1: // spares the goroutine that GetMulti starts
		item, err := s.client.Get(keys[0])
		if errors.Is(err, memcache.ErrCacheMiss) {
			return items{}, nil
		}
		return items{keys[0]: item}, err
	}
	return s.client.GetMulti(keys)
}

// put writes an item, or removes it, if nobody has changed it since it was found, else it
// returns errRaced.
func (s *server) put(item *memcache.Item, found items) (err error) {
	if read := found[item.Key]; read == nil {
		err = s.client.Add(item)
	} else {
		item.CasID = read.CasID
		err = s.client.CompareAndSwap(item)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, memcache.ErrNotStored), errors.Is(err, memcache.ErrCASConflict), errors.Is(err, memcache.ErrCacheMiss):
		return errRaced
	}
	return fmt.Errorf("write: %w", err)
}

// errRaced says that another writer was faster.
var errRaced = errors.New("changed by another writer")

// ping asks the server for its version.
func (s *server) ping(ctx context.Context) error {
	if err := s.call(ctx, func(context.Context) error { return s.client.Ping() }); err != nil {
		return s.unavailable(err)
	}
	return nil
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

var errClosed = errors.New("the store is closed")

// workers are goroutines that call one server, so many at most. gomemcache's calls take no context: they
// run here while their callers wait or give up.
type workers struct {
	ctx     context.Context // ends with stop
	end     context.CancelFunc
	busy    chan struct{} // has an element for each worker
	mu      sync.Mutex    // of running and stop
	running sync.WaitGroup
}

func newWorkers(max int) *workers {
	w := &workers{busy: make(chan struct{}, max)}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// run begins f as soon as there are less workers than may be, or at once if it must not wait. It returns
// an error, and f never begins, if ctx ends or the workers are stopped before.
func (w *workers) run(ctx context.Context, f func(), atOnce bool) error {
	work := f
	if !atOnce {
		select {
		case w.busy <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ctx.Done():
			return errClosed
		}
		work = func() { defer w.leave(); f() }
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return errClosed
	}
	w.running.Go(work)
	return nil
}

func (w *workers) leave() { <-w.busy }

// each calls f for 0 to n-1, side by side as far as there may be more workers, and returns when all calls
// have ended. A worker calls it.
func (w *workers) each(n int, f func(int)) {
	var next atomic.Int64
	var helpers sync.WaitGroup
	some := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			f(i)
		}
	}
	for range n - 1 {
		select {
		case w.busy <- struct{}{}:
			helpers.Go(func() { defer w.leave(); some() })
		default:
		}
	}
	some()
	helpers.Wait()
}

// stop returns when every worker has ended.
func (w *workers) stop() {
	w.mu.Lock()
	w.end()
	w.mu.Unlock()
	w.running.Wait()
}
