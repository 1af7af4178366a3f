package redis

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis/lane"
)

// single is one server, or the one that sentinels name.
type single struct {
	client *goredis.Client
	way    *lane.Lane
}

// openSingle calls changed when another server may have taken over.
func openSingle(t *target, changed func()) *single {
	d := t.dialer()
	client := goredis.NewClient(&goredis.Options{
		Network: t.SocketType, Addr: t.addrs[0], DB: t.db,
		Dialer: d.Dial, CredentialsProviderContext: t.credentials,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 2 * t.connecting(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
	addr := t.addrs[0]
	return &single{client, lane.New(client, func() string { return addr }, d, t.Watch.Server(addr), changed)}
}

// openSentinel calls changed when another server may have taken over.
func openSentinel(t *target, changed func()) *single {
	d := t.dialer()
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.addrs,
		Dialer: d.Dial, CredentialsProviderContext: t.credentials, OnConnect: t.signIn,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: 2 * t.connecting(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
	m := &master{name: t.master, changed: changed}
	client.AddHook(m)
	return &single{client, lane.New(client, m.String, d, t.Watch.Server(t.master), changed)}
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
			return lane.Broken(err), nil
		}
		if !lane.IsBroken(c) {
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

func (s *single) lane(context.Context, string) (*lane.Lane, error) { return s.way, nil }

func (s *single) breaker(string) *breaker.Breaker { return s.way.Breaker }

func (s *single) redirect(error) (*lane.Lane, bool) { return nil, false }

func (s *single) failed(error) {}

func (s *single) time(ctx context.Context) (time.Time, error) {
	t, err := s.client.Time(ctx).Result()
	if err != nil {
		return t, fmt.Errorf("%s: %w", s.way.Name(), err)
	}
	return t, nil
}

func (s *single) ping(ctx context.Context) error { return s.way.Ping(ctx) }

func (s *single) close() error {
	s.way.Close()
	s.way.Drain()
	return s.client.Close()
}

func (s *single) scan(ctx context.Context, match string, each func([]string) error) error {
	if err := scan(ctx, s.client, match, each); err != nil {
		return fmt.Errorf("%s: %w", s.way.Name(), err)
	}
	return nil
}
