package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// topologyEvery is how often the slots are looked up when all is well.
	topologyEvery = 10 * time.Second
	// topologyRetry is the pause between attempts to look them up at first.
	topologyRetry = 50 * time.Millisecond
	// topologyPause is the least time between look-ups that failed calls ask
	// for.
	topologyPause = 100 * time.Millisecond
)

// cluster is a Redis Cluster. go-redis keeps the topology; each master has a
// lane of its own, so that a dead one holds up nobody else's calls.
type cluster struct {
	client *goredis.ClusterClient
	known  chan struct{} // closed when the topology was first read
	cancel context.CancelFunc

	mu         sync.Mutex
	lanes      map[*goredis.Client]*lane
	byAddr     map[string]*goredis.Client
	lastReload time.Time
}

func openCluster(t *target) *cluster {
	d := newDialer(t)
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{
		known: make(chan struct{}), cancel: cancel,
		lanes: map[*goredis.Client]*lane{}, byAddr: map[string]*goredis.Client{},
	}
	c.client = goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs:    t.addrs,
		Username: t.user, Password: t.password,
		Dialer:   d.dial,
		Protocol: 2, DisableIdentity: true,
		MaxRedirects: -1, DialerRetries: 1, DisableRoutingPolicies: true,
		DialTimeout: t.silence(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
		ClusterStateReloadInterval: topologyEvery,
	})
	c.client.OnNewNode(func(node *goredis.Client) {
		c.mu.Lock()
		c.byAddr[node.Options().Addr] = node
		c.mu.Unlock()
	})
	go c.learn(ctx)
	return c
}

// learn reads the topology for the first time. Afterwards go-redis renews it
// in the background; before, it would make each caller wait for the network.
func (c *cluster) learn(ctx context.Context) {
	timer := time.NewTimer(topologyRetry)
	defer timer.Stop()
	for {
		if _, err := c.client.MasterForKey(ctx, ""); err == nil {
			close(c.known)
			return
		}
		timer.Reset(topologyRetry)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (c *cluster) lane(ctx context.Context, key string) (*lane, error) {
	select {
	case <-c.known:
	case <-ctx.Done():
		return nil, fmt.Errorf("no node of the cluster has told its slots yet: %w", ctx.Err())
	}
	node, err := c.client.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.laneTo(node)
}

func (c *cluster) laneTo(node *goredis.Client) (*lane, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[node]
	if l != nil {
		return l, nil
	}
	l, err := newLane(node)
	if err != nil {
		return nil, err
	}
	c.forgetClosed()
	c.lanes[node] = l
	return l, nil
}

// forgetClosed drops the lanes to nodes that have left the cluster.
func (c *cluster) forgetClosed() {
	for node, l := range c.lanes {
		if l.pipe.IsClosed() {
			delete(c.lanes, node)
			delete(c.byAddr, node.Options().Addr)
		}
	}
}

func (c *cluster) redirect(err error) (*lane, bool) {
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
		return nil, false // the next topology will know it
	}
	l, err := c.laneTo(node)
	if err != nil {
		return nil, false
	}
	return l, asking
}

// failed has the topology read again: perhaps a replica has been promoted.
// What Redis answered, other than to look elsewhere, is no reason.
func (c *cluster) failed(err error) {
	var answer goredis.Error
	_, moved := goredis.IsMovedError(err)
	if errors.As(err, &answer) && !moved && !goredis.IsReadOnlyError(err) && !goredis.IsClusterDownError(err) {
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
	}
}

// time asks all masters and returns the time of the one with the least
// address, so that all processes go by the same clock.
func (c *cluster) time(ctx context.Context) (time.Time, error) {
	var mu sync.Mutex
	var first string
	var result time.Time
	err := c.client.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
		t, err := node.Time(ctx).Result()
		if err != nil {
			return nil // another master may do
		}
		mu.Lock()
		defer mu.Unlock()
		if addr := node.Options().Addr; first == "" || addr < first {
			first, result = addr, t
		}
		return nil
	})
	if err == nil && first == "" {
		err = errors.New("no master of the cluster has told its time")
	}
	return result, err
}

// ping succeeds when one master answers: the others' failures are their keys'.
func (c *cluster) ping(ctx context.Context) error {
	masters, err := c.masters(ctx)
	if err != nil {
		return err
	}
	answers := make(chan error, len(masters))
	for _, l := range masters {
		go func() { answers <- l.do(ctx, goredis.NewStatusCmd(context.Background(), "ping")) }()
	}
	for range masters {
		if err = <-answers; err == nil {
			return nil
		}
	}
	return err
}

// masters is the lanes to the masters, as far as looking up some hundred keys
// finds them; go-redis would read the topology anew to tell them.
func (c *cluster) masters(ctx context.Context) ([]*lane, error) {
	var masters []*lane
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
	return c.client.Close()
}
