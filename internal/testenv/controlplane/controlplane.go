// Package controlplane is an xDS management server for tests: the server of
// go-control-plane, on which gateways are built, with snapshots of rules.
package controlplane

import (
	"context"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"example.org/rls/internal/testenv"
)

// patience is how long a request may take to come.
const patience = 20 * time.Second

// Port is a loopback port on which servers come and go.
type Port struct {
	t    testing.TB
	Addr string
	grpc *grpc.Server // nil while the server is down
}

// NewPort finds a free port; nobody listens on it yet.
func NewPort(t testing.TB) *Port {
	p := &Port{t: t, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t)))}
	t.Cleanup(p.Stop)
	return p
}

// Serve starts a management server.
func (p *Port) Serve(s discovery.AggregatedDiscoveryServiceServer, options ...grpc.ServerOption) {
	p.t.Helper()
	listen, err := net.Listen("tcp", p.Addr)
	if err != nil {
		p.t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(server, s)
	go func() { _ = server.Serve(listen) }() // Stop ends it
	p.grpc = server
}

// Stop ends the server and its streams, if there is one.
func (p *Port) Stop() {
	if p.grpc != nil {
		p.grpc.Stop()
		p.grpc = nil
	}
}

// Plane is a management server with snapshots that remembers the requests to it.
type Plane struct {
	xdsserver.Server
	t         testing.TB
	node      string
	snapshots cache.SnapshotCache

	mu      sync.Mutex
	headers []metadata.MD // of each stream
	asked   []*discovery.DiscoveryRequest
	deltas  []*discovery.DeltaDiscoveryRequest
}

// New returns a server for one node, without a snapshot.
func New(t testing.TB, node string) *Plane {
	p := &Plane{t: t, node: node, snapshots: cache.NewSnapshotCache(true, cache.IDHash{}, nil)}
	opened := func(ctx context.Context, _ int64, _ string) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		md, _ := metadata.FromIncomingContext(ctx)
		p.headers = append(p.headers, md)
		return nil
	}
	p.Server = xdsserver.NewServer(t.Context(), p.snapshots, xdsserver.CallbackFuncs{
		StreamOpenFunc:         opened,
		DeltaStreamOpenFunc:    opened,
		StreamRequestFunc:      keeper(p, &p.asked),
		StreamDeltaRequestFunc: keeper(p, &p.deltas),
	})
	return p
}

// keeper returns a callback that keeps a copy of each request.
func keeper[R proto.Message](p *Plane, all *[]R) func(int64, R) error {
	return func(_ int64, r R) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		*all = append(*all, proto.CloneOf(r))
		return nil
	}
}

// Set makes these the resources of the node.
func (p *Plane) Set(version string, configs ...*ratelimit.RateLimitConfig) {
	p.t.Helper()
	resources := make([]types.Resource, len(configs))
	for i, c := range configs {
		resources[i] = c
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.snapshots.SetSnapshot(p.t.Context(), p.node, snapshot); err != nil {
		p.t.Fatal(err)
	}
}

// Request waits for the nth request of all streams.
func (p *Plane) Request(n int) *discovery.DiscoveryRequest {
	p.t.Helper()
	return nth(p, &p.asked, n)
}

// Delta is Request for the delta protocol.
func (p *Plane) Delta(n int) *discovery.DeltaDiscoveryRequest {
	p.t.Helper()
	return nth(p, &p.deltas, n)
}

func nth[R any](p *Plane, of *[]R, n int) (r R) {
	p.t.Helper()
	testenv.Eventually(p.t, patience, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(*of) <= n {
			return false
		}
		r = (*of)[n]
		return true
	}, "request "+strconv.Itoa(n))
	return r
}

// Streams counts the streams that were opened.
func (p *Plane) Streams() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.headers)
}

// Header returns the values of a header of the nth stream.
func (p *Plane) Header(n int, name string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.headers[n].Get(name)
}
