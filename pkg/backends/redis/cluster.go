package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis/lane"
)

// The times between look-ups of the slots.
const (
	topologyEvery = 10 * time.Second       // when all is well
	topologyRetry = 50 * time.Millisecond  // until the first one succeeds
	topologyPause = 100 * time.Millisecond // the least, because of calls that have failed
)

// cluster is a Redis Cluster. go-redis keeps the topology. Each master has a
// lane of its own, so a dead master holds up only the calls for its own slots.
type cluster struct {
	client *goredis.ClusterClient
	watch  *breaker.Watch
	seeds  *breaker.Breaker      // the configured nodes, until the topology is known
	known  chan struct{}         // closed when the topology was first read, or the store was closed
	reason atomic.Pointer[error] // why the topology is not known yet
	cancel context.CancelFunc

	changed func()

	mu         sync.Mutex
	nodes      map[string]*node // by address
	lastReload time.Time
}

// node is a server of the cluster that go-redis knows.
type node struct {
	client *goredis.Client
	dialer *lane.Dialer
	lane   *lane.Lane // nil until a call goes to the node
}

// leave drops the lane to the node, if there is one.
func (n *node) leave() {
	if n != nil && n.lane != nil {
		n.lane.Breaker.Left()
		n.lane.Retire()
		n.lane = nil
	}
}

// atOnce is a context that has ended.
var atOnce = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// openCluster calls changed when other servers may be the masters.
func openCluster(t *target, changed func()) *cluster {
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{
		watch: t.Watch, seeds: t.Watch.Server(strings.Join(t.addrs, ",")),
		known: make(chan struct{}), cancel: cancel, changed: changed, nodes: map[string]*node{},
	}
	o := t.universal().Cluster()
	o.DisableRoutingPolicies, o.ClusterStateReloadInterval = true, topologyEvery
	o.NewClient = func(o *goredis.Options) *goredis.Client {
		d := t.dialer()
		o.Dialer = d.Dial
		client := goredis.NewClient(o)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.nodes[o.Addr].leave() // go-redis has closed the client of the node that was there
		c.nodes[o.Addr] = &node{client: client, dialer: d}
		return client
	}
	c.client = goredis.NewClusterClient(o)
	go c.learn(ctx)
	return c
}

// learn reads the topology for the first time, which a caller of go-redis would have to
// wait for. Afterwards go-redis renews it in the background.
func (c *cluster) learn(ctx context.Context) {
	defer close(c.known) // when ctx has ended, calls fail: the client is closed
	for ctx.Err() == nil {
		if attempt, err := c.seeds.Allow(); err == nil {
			start := time.Now()
			_, err = c.client.MasterForKey(ctx, "")
			if err == nil {
				attempt.Done(0, nil)
				c.seeds.Left()
				return
			}
			if ctx.Err() == nil {
				err = lane.Explain(err, true)
				c.reason.Store(&err)
			}
			attempt.Done(time.Since(start), err)
		}
		_ = backends.Pause(ctx, topologyRetry)
	}
}

func (c *cluster) lane(ctx context.Context, key string) (*lane.Lane, error) {
	select {
	case <-c.known: // also when ctx has ended: the call outlives its caller
	default:
		if c.reason.Load() != nil {
			ctx = atOnce
		}
		if err := backends.Wait(ctx, c.known); err != nil {
			if reason := c.reason.Load(); reason != nil { // perhaps it came meanwhile
				err = *reason
			}
			seeds := strings.Join(c.client.Options().Addrs, ",")
			return nil, fmt.Errorf("no node of the cluster (%s) has told its slots yet: %w", seeds, err)
		}
	}
	client, err := c.client.MasterForKey(context.Background(), key)
	if err != nil {
		return nil, err
	}
	if l := c.laneTo(client.Options().Addr); l != nil {
		return l, nil
	}
	return nil, goredis.ErrClosed
}

// laneTo returns the lane to the node at addr, or nil if the node is not known: forget may
// have dropped it after the caller learned of it, because it has left the cluster.
func (c *cluster) laneTo(addr string) *lane.Lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[addr]
	if n == nil {
		return nil
	}
	if n.lane == nil {
		n.lane = lane.New(n.client, func() string { return addr }, n.dialer, c.watch.Server(addr), nil)
	}
	return n.lane
}

// forget drops the nodes that have left the cluster, whose clients go-redis has closed,
// and, if the masters are known, the lanes to nodes that are no masters any more. Nobody
// sends to such a node, so its breaker would stay open for ever if the node was away when
// its replica was promoted. To ask whether a client is closed costs no network call: an
// open client sends nothing because the context of the question has ended.
func (c *cluster) forget(masters map[string]*goredis.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for addr, n := range c.nodes {
		closed := errors.Is(n.client.Ping(atOnce).Err(), goredis.ErrClosed)
		if closed {
			delete(c.nodes, addr)
		}
		if closed || len(masters) > 0 && masters[addr] == nil {
			n.leave()
		}
	}
}

// onHost is the address told, as a host:port whose IPv6 address is in brackets, on the host of
// the address asked if it has none.
func onHost(told, asked string) string {
	at := max(0, strings.LastIndexByte(told, ':'))
	host, port := strings.Trim(told[:at], "[]"), strings.TrimPrefix(told[at:], ":")
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

func (c *cluster) redirect(err error, from *lane.Lane) (*lane.Lane, bool) {
	addr, asking := goredis.IsAskError(err)
	if !asking {
		addr, _ = goredis.IsMovedError(err)
	}
	return c.laneTo(onHost(addr, from.Name())), asking // nil if only the next topology will have the node
}

// failed has the topology read again, because a replica may have been promoted, unless the
// caller has gone, there was no room for the call, or the server's answer neither names
// another node for the slot nor says that this node cannot serve.
func (c *cluster) failed(err error) {
	_, moved := goredis.IsMovedError(err)
	if lane.Answered(err) && !moved && !lane.CannotServe(err) || errors.Is(err, context.Canceled) || errors.Is(err, breaker.ErrBusy) {
		return
	}
	c.mu.Lock()
	due := time.Since(c.lastReload) >= topologyPause
	if due {
		c.lastReload = time.Now()
	}
	c.mu.Unlock()
	if due {
		c.client.ReloadState(context.Background())
		c.changed()
	}
}

func (c *cluster) routed() goredis.UniversalClient { return c.client }

// lanes are the lanes to the masters of 256 keys: almost surely all masters.
// To list them go-redis would read the topology again.
func (c *cluster) lanes(ctx context.Context) ([]*lane.Lane, error) {
	var masters []*lane.Lane
	for i := range 256 {
		l, err := c.lane(ctx, strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(masters, l) {
			masters = append(masters, l)
		}
	}
	return masters, nil
}

func (c *cluster) masters(ctx context.Context) (map[string]*goredis.Client, error) {
	var mu sync.Mutex
	masters := map[string]*goredis.Client{}
	err := c.client.ForEachMaster(ctx, func(_ context.Context, client *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters[client.Options().Addr] = client
		return nil
	})
	if c.forget(masters); err == nil && len(masters) == 0 {
		err = errors.New("the cluster has no master")
	}
	return masters, err
}

func (c *cluster) close() error {
	c.cancel()
	var open []*lane.Lane
	c.mu.Lock()
	for _, n := range c.nodes {
		if n.lane != nil {
			n.lane.Close()
			open = append(open, n.lane)
		}
	}
	c.mu.Unlock()
	for _, l := range open {
		l.Drain()
	}
	return c.client.Close()
}
