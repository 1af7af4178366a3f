package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/redis/lane"
)

// servers are the servers that hold a store's cells: one server, or the masters
// of a cluster.
type servers interface {
	// lane is the way to the server that has key.
	lane(ctx context.Context, key string) (*lane.Lane, error)
	// lanes are the ways to all servers.
	lanes(ctx context.Context) ([]*lane.Lane, error)
	// redirect is the way to the server that a MOVED or ASK error names, or
	// nil; asking says that the call must follow an ASKING there. from gave the error.
	redirect(err error, from *lane.Lane) (l *lane.Lane, asking bool)
	// failed takes note of the error of a call.
	failed(err error)
	// masters are the clients of all servers, at least one, by their names.
	masters(ctx context.Context) (map[string]*goredis.Client, error)
	// routed is a client that finds the server of a key by itself.
	routed() goredis.UniversalClient
	close() error
}

// single is one server, or the one that sentinels name.
type single struct {
	client *goredis.Client
	way    *lane.Lane
}

// openSingle, as openSentinel, calls changed when another server may have taken over.
func openSingle(t *target, changed func()) *single {
	d, addr := t.dialer(), t.addrs[0]
	o := t.universal().Simple()
	o.Network, o.Dialer = t.SocketType, d.Dial
	client := goredis.NewClient(o)
	return &single{client, lane.New(client, func() string { return addr }, d, t.Watch.Server(addr), changed)}
}

func openSentinel(t *target, changed func()) *single {
	d := t.dialer()
	o := t.universal().Failover()
	o.Dialer, o.OnConnect = d.Dial, t.signIn
	client := goredis.NewFailoverClient(o)
	m := &sentinelMaster{name: t.master, changed: changed}
	client.AddHook(m)
	return &single{client, lane.New(client, m.label, d, t.Watch.Server(t.master), changed)}
}

// signIn authenticates a new connection to a sentinel, because go-redis asks for the
// credentials for sentinels only once. go-redis calls it for the connections to the
// master, too, and leaves them as they are: it has authenticated them.
func (t *target) signIn(ctx context.Context, c *goredis.Conn) error {
	const master = "FailoverClient" // the address that go-redis gives the master
	if t.SentinelAuth == nil || strings.Contains(c.String(), master) {
		return nil
	}
	var err error
	if user, password := cutAuth(t.SentinelAuth()); user != "" {
		err = c.AuthACL(ctx, user, password).Err()
	} else {
		err = c.Auth(ctx, password).Err()
	}
	if err != nil {
		return fmt.Errorf("authenticate at a sentinel: %w", err)
	}
	return nil
}

// sentinelMaster is the server to which sentinels lead. As a hook of go-redis it keeps
// the address of the latest connection, and turns the failure to find a master
// into a broken connection; see lane.Dialer.Dial.
type sentinelMaster struct {
	name    string
	addr    atomic.Value // string
	changed func()
}

// label is the master's name and, if it was found, its address.
func (m *sentinelMaster) label() string {
	if addr, ok := m.addr.Load().(string); ok {
		return m.name + " (" + addr + ")"
	}
	return m.name
}

func (m *sentinelMaster) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if errors.Is(err, goredis.Nil) {
			err = fmt.Errorf("the sentinels know no master named %q (use the name that they monitor)", m.name)
		}
		if err != nil {
			return lane.Broken(lane.Explain(err, m.addr.Load() == nil)), nil
		}
		if !lane.IsBroken(c) {
			if at := c.RemoteAddr().String(); m.addr.Swap(at) != at {
				m.changed()
			}
		}
		return c, nil
	}
}
func (m *sentinelMaster) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (m *sentinelMaster) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (s *single) lane(context.Context, string) (*lane.Lane, error) { return s.way, nil }

func (s *single) lanes(context.Context) ([]*lane.Lane, error) { return []*lane.Lane{s.way}, nil }

func (s *single) redirect(error, *lane.Lane) (*lane.Lane, bool) { return nil, false }

func (s *single) failed(error) {}

func (s *single) routed() goredis.UniversalClient { return s.client }

func (s *single) masters(context.Context) (map[string]*goredis.Client, error) {
	return map[string]*goredis.Client{s.way.Name(): s.client}, nil
}

func (s *single) close() error {
	s.way.Close()
	s.way.Drain()
	return s.client.Close()
}
