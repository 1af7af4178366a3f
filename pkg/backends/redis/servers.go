package redis

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/breaker"
)

// servers are the servers that hold a store's cells: one server, or the masters
// of a cluster.
type servers interface {
	// lane is the way to the server that has key.
	lane(ctx context.Context, key string) (*lane, error)
	// breaker is the breaker of the server that has key, or nil if none is known.
	breaker(key string) *breaker.Breaker
	// redirect is the way to the server that a MOVED or ASK error names, or
	// nil; asking says that the call must follow an ASKING there.
	redirect(err error) (l *lane, asking bool)
	// failed takes note of the error of a call.
	failed(err error)
	// time is the time on the one server whose clock counts.
	time(ctx context.Context) (time.Time, error)
	// ping succeeds when the store can decide for some keys.
	ping(ctx context.Context) error
	// scan calls each with the keys that match a glob, some at a time.
	scan(ctx context.Context, match string, each func(keys []string) error) error
	close() error
}

// single is one server, or the one that sentinels name.
type single struct {
	client *goredis.Client
	way    *lane
}

// newSingle calls changed when the server has become a replica.
func newSingle(client *goredis.Client, name func() string, d *dialer, b *breaker.Breaker, changed func()) *single {
	s := &single{client: client, way: newLane(client, name, d, b)}
	s.way.demoted = changed
	return s
}

// openSingle calls changed when another server may have taken over.
func openSingle(t *target, changed func()) *single {
	d := newDialer(t)
	client := goredis.NewClient(&goredis.Options{
		Network: t.SocketType, Addr: t.addrs[0], DB: t.db,
		Dialer: d.dial, CredentialsProviderContext: t.credentials,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 2 * t.connecting(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
	addr := t.addrs[0]
	return newSingle(client, func() string { return addr }, d, t.Watch.Server(addr), changed)
}

// bufferSize is the size of a connection's buffer, for either direction: some
// hundreds of calls.
const bufferSize = 64 << 10

// openSentinel calls changed when another server may have taken over.
func openSentinel(t *target, changed func()) *single {
	d := newDialer(t)
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.addrs,
		Dialer: d.dial, CredentialsProviderContext: t.credentials, OnConnect: t.signIn,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 2 * t.connecting(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
	m := &master{name: t.master, changed: changed}
	client.AddHook(m)
	return newSingle(client, m.String, d, t.Watch.Server(t.master), changed)
}

// master is the server to which sentinels lead. As a hook of go-redis it keeps
// the address of the latest connection, and turns the failure to find a master
// into a broken connection; see dialer.dial.
type master struct {
	name    string
	addr    atomic.Value // string
	changed func()
}

// String is the master's name and, if it was found, its address.
func (m *master) String() string {
	if addr, ok := m.addr.Load().(string); ok {
		return m.name + " (" + addr + ")"
	}
	return m.name
}

func (m *master) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return newBroken(err), nil
		}
		if _, failed := c.(broken); !failed {
			if at := c.RemoteAddr().String(); m.addr.Swap(at) != at {
				m.changed()
			}
		}
		return c, nil
	}
}
func (m *master) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (m *master) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (s *single) lane(context.Context, string) (*lane, error) { return s.way, nil }

func (s *single) breaker(string) *breaker.Breaker { return s.way.breaker }

func (s *single) redirect(error) (*lane, bool) { return nil, false }

func (s *single) failed(error) {}

func (s *single) time(ctx context.Context) (time.Time, error) {
	t, err := s.client.Time(ctx).Result()
	if err != nil {
		return t, fmt.Errorf("%s: %w", s.way.name(), err)
	}
	return t, nil
}

func (s *single) ping(ctx context.Context) error { return s.way.ping(ctx) }

func (s *single) close() error {
	s.way.close()
	s.way.drain()
	return s.client.Close()
}
