package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis/lane"
)

const (
	// topologyEvery is how often the slots are looked up when all is well.
	topologyEvery = 10 * time.Second
	// topologyRetry is the pause between look-ups until the first one succeeds.
	topologyRetry = 50 * time.Millisecond
	// topologyPause is the least time between look-ups because of calls that
	// have failed.
	topologyPause = 100 * time.Millisecond
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
	lanes      map[*goredis.Client]*lane.Lane
	dialers    map[*goredis.Client]*lane.Dialer
	byAddr     map[string]*goredis.Client
	lastReload time.Time
}

// openCluster calls changed when other servers may be the masters.
func openCluster(t *target, changed func()) *cluster {
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{
		watch: t.Watch, seeds: t.Watch.Server(strings.Join(t.addrs, ",")),
		known: make(chan struct{}), cancel: cancel, changed: changed,
		lanes: map[*goredis.Client]*lane.Lane{}, dialers: map[*goredis.Client]*lane.Dialer{}, byAddr: map[string]*goredis.Client{},
	}
	c.client = goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs:                      t.addrs,
		CredentialsProviderContext: t.credentials,
		Protocol:                   2, DisableIdentity: true,
		MaxRedirects: -1, DialerRetries: 1, DisableRoutingPolicies: true,
		DialTimeout: 2 * t.connecting(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		ClusterStateReloadInterval: topologyEvery,
		NewClient: func(o *goredis.Options) *goredis.Client {
			d := t.dialer()
			o.Dialer = d.Dial
			node := goredis.NewClient(o)
			c.mu.Lock()
			c.dialers[node], c.byAddr[o.Addr] = d, node
			c.mu.Unlock()
			return node
		},
	})
	go c.learn(ctx)
	return c
}

// learn reads the topology for the first time. Afterwards go-redis renews it
// in the background. If a caller asked go-redis earlier, it would have to wait
// for the network.
func (c *cluster) learn(ctx context.Context) {
	timer := time.NewTimer(topologyRetry)
	defer timer.Stop()
	for {
		if call, err := c.seeds.Allow(); err == nil {
			start := time.Now()
			_, err = c.client.MasterForKey(ctx, "")
			if err == nil {
				call.Done(0, nil)
				c.seeds.Left()
				close(c.known)
				return
			}
			if ctx.Err() == nil {
				err = lane.Explain(err, true)
				c.reason.Store(&err)
			}
			call.Done(time.Since(start), err)
		}
		timer.Reset(topologyRetry)
		select {
		case <-ctx.Done():
			close(c.known) // calls fail: the client is closed
			return
		case <-timer.C:
		}
	}
}

func (c *cluster) lane(ctx context.Context, key string) (*lane.Lane, error) {
	select {
	case <-c.known: // also when ctx has ended: the call outlives its caller
	default:
		if reason := c.reason.Load(); reason != nil {
			return nil, c.unknown(*reason)
		}
		select {
		case <-c.known:
		case <-ctx.Done():
			return nil, c.unknown(ctx.Err())
		}
	}
	node, err := c.client.MasterForKey(context.WithoutCancel(ctx), key)
	if err != nil {
		return nil, err
	}
	if l := c.laneTo(node); l != nil {
		return l, nil
	}
	return nil, goredis.ErrClosed
}

func (c *cluster) breaker(key string) *breaker.Breaker {
	select {
	case <-c.known:
	default:
		return nil
	}
	node, err := c.client.MasterForKey(context.Background(), key)
	if err != nil {
		return nil
	}
	if l := c.laneTo(node); l != nil {
		return l.Breaker
	}
	return nil
}

// unknown is the error of a call that ends before the topology is known.
func (c *cluster) unknown(err error) error {
	return fmt.Errorf("no node of the cluster (%s) has told its slots yet: %w", strings.Join(c.client.Options().Addrs, ","), err)
}

// laneTo returns the lane to node, or nil if forgetClosed has dropped the node: the
// caller learned of it before go-redis closed its client.
func (c *cluster) laneTo(node *goredis.Client) *lane.Lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lanes[node]; l != nil {
		return l
	}
	d := c.dialers[node]
	if d == nil {
		return nil
	}
	addr := node.Options().Addr
	l := lane.New(node, func() string { return addr }, d, c.watch.Server(addr), nil)
	c.lanes[node] = l
	return l
}

// forgetClosed drops the lanes to nodes that have left the cluster, whose
// clients go-redis has closed. The test costs no network call: a closed client
// returns an error of its own, and an open client sends nothing because the
// test's context has ended.
func (c *cluster) forgetClosed() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for node := range c.dialers {
		if !errors.Is(node.Ping(ended).Err(), goredis.ErrClosed) {
			continue
		}
		if addr := node.Options().Addr; c.byAddr[addr] == node {
			delete(c.byAddr, addr)
		}
		delete(c.dialers, node)
		c.forget(node)
	}
}

// forgetAllBut drops the lanes to nodes that are no masters any more. Nobody sends to
// such a node, so its breaker would stay open for ever if the node was away when its
// replica was promoted.
func (c *cluster) forgetAllBut(masters map[*goredis.Client]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for node := range c.lanes {
		if !masters[node] {
			c.forget(node)
		}
	}
}

// forget drops the lane to a node, if there is one. The caller holds c.mu.
func (c *cluster) forget(node *goredis.Client) {
	if l := c.lanes[node]; l != nil {
		l.Breaker.Left()
		l.Retire()
		delete(c.lanes, node)
	}
}

func (c *cluster) redirect(err error) (*lane.Lane, bool) {
	addr, moved := goredis.IsMovedError(err)
	asking := false
	if !moved {
		if addr, asking = goredis.IsAskError(err); !asking {
			return nil, false
		}
	}
	c.mu.Lock()
	node := c.byAddr[addr]
	c.mu.Unlock()
	if node == nil {
		return nil, false // the next topology will have the node
	}
	return c.laneTo(node), asking
}

// failed has the topology read again, because a replica may have been promoted.
// It does nothing for a caller that has gone, nor for an answer of the server
// that neither names another node for the slot nor says that this node cannot
// serve, nor for a call for which there was no room.
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

// time asks all masters and returns the time of the one with the least
// address, so that all processes go by the same clock.
func (c *cluster) time(ctx context.Context) (time.Time, error) {
	c.forgetClosed()
	var mu sync.Mutex
	var failure error
	var first string
	var result time.Time
	masters := map[*goredis.Client]bool{}
	err := c.client.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
		t, err := node.Time(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		masters[node] = true
		if err != nil {
			failure = fmt.Errorf("%s: %w", node.Options().Addr, err)
			return nil // another master's time will do
		}
		if addr := node.Options().Addr; first == "" || addr < first {
			first, result = addr, t
		}
		return nil
	})
	if err != nil {
		return result, err
	}
	c.forgetAllBut(masters)
	if first == "" {
		err = cmp.Or(failure, errors.New("the cluster has no master"))
	}
	return result, err
}

// ping succeeds when one master answers: the store can decide for its keys.
func (c *cluster) ping(ctx context.Context) error {
	masters, err := c.masters(ctx)
	if err != nil {
		return err
	}
	answers := make(chan error, len(masters))
	for _, l := range masters {
		go func() { answers <- l.Ping(ctx) }()
	}
	for range masters {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return err
}

// masters are the lanes to the masters of 256 keys: almost surely all masters.
// To list them go-redis would read the topology again.
func (c *cluster) masters(ctx context.Context) ([]*lane.Lane, error) {
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

func (c *cluster) close() error {
	c.cancel()
	c.mu.Lock()
	lanes := slices.Collect(maps.Values(c.lanes))
	c.mu.Unlock()
	for _, l := range lanes {
		l.Close()
	}
	for _, l := range lanes {
		l.Drain()
	}
	return c.client.Close()
}

// scan asks all masters at once and calls each with the keys of one after the other.
func (c *cluster) scan(ctx context.Context, match string, each func([]string) error) error {
	var one sync.Mutex
	return c.client.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
		err := scan(ctx, node, match, func(keys []string) error {
			one.Lock()
			defer one.Unlock()
			if ctx.Err() != nil { // another master has failed
				return ctx.Err()
			}
			return each(keys)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", node.Options().Addr, err)
		}
		return nil
	})
}
