package redis

import (
	"context"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// servers is what stands behind a store: one server, or a cluster of them.
type servers interface {
	// lane is the way to the server that has key.
	lane(ctx context.Context, key string) (*lane, error)
	// redirect is the way to where a server sent a call on to, if err says
	// so; asking, if the call must be announced there (ASK).
	redirect(err error) (l *lane, asking bool)
	// failed tells that a call has failed or was not answered in time.
	failed(err error)
	// time is the time on the one server whose clock counts.
	time(ctx context.Context) (time.Time, error)
	ping(ctx context.Context) error
	close() error
}

// single is one server, perhaps another one after a failover.
type single struct {
	client *goredis.Client
	way    *lane
	dialer *dialer
}

func openSingle(t *target) (*single, error) {
	d := newDialer(t)
	client := goredis.NewClient(&goredis.Options{
		Network: t.SocketType, Addr: t.addrs[0], DB: t.db,
		Username: t.user, Password: t.password,
		Dialer:   d.dial,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: t.silence(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
	return newSingle(client, d)
}

// bufferSize is a connection's, either way: some hundreds of calls.
const bufferSize = 64 << 10

func newSingle(client *goredis.Client, d *dialer) (*single, error) {
	way, err := newLane(client)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	return &single{client: client, way: way, dialer: d}, nil
}

func openSentinel(t *target) (*single, error) {
	d := newDialer(t)
	user, password := credentials(t.SentinelAuth)
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.addrs,
		SentinelUsername: user, SentinelPassword: password,
		Username: t.user, Password: t.password,
		Dialer:   d.dial,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: t.silence(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	})
	client.AddHook(neverFail{})
	return newSingle(client, d)
}

// neverFail makes the sentinels' silence, too, a connection that is broken; see
// dialer.dial.
type neverFail struct{}

func (neverFail) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return broken{err: err}, nil
		}
		return c, nil
	}
}
func (neverFail) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (neverFail) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (s *single) lane(context.Context, string) (*lane, error) { return s.way, nil }

func (s *single) redirect(error) (*lane, bool) { return nil, false }

// failed leaves a server that has been demoted: it answers, so the connections
// would stay. The name may lead to its successor by now.
func (s *single) failed(err error) {
	if goredis.IsReadOnlyError(err) {
		s.dialer.leaveAll()
	}
}

func (s *single) time(ctx context.Context) (time.Time, error) { return s.client.Time(ctx).Result() }

func (s *single) ping(ctx context.Context) error {
	return s.way.do(ctx, goredis.NewStatusCmd(context.Background(), "ping"))
}

func (s *single) close() error { return s.client.Close() }
