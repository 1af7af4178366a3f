package xds_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	controlplane "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/xds"
)

const (
	node = "envoy-gateway-ratelimit"
	soon = 10 * time.Second
)

// quickly is a back-off that does not make tests wait.
var quickly = xds.Backoff{Unreachable: 20 * time.Millisecond, Ended: 20 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: true}

// port is a loopback port on which servers come and go.
type port struct {
	t    *testing.T
	addr string
	grpc *grpc.Server // nil while there is none
}

func newPort(t *testing.T) *port {
	p := &port{t: t, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t)))}
	t.Cleanup(p.stop)
	return p
}

// serve starts a management server.
func (p *port) serve(s discovery.AggregatedDiscoveryServiceServer, options ...grpc.ServerOption) {
	p.t.Helper()
	listen, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	discovery.RegisterAggregatedDiscoveryServiceServer(server, s)
	go func() { _ = server.Serve(listen) }() // stop ends it
	p.grpc = server
}

// stop ends the server and its streams, if there is one.
func (p *port) stop() {
	if p.grpc != nil {
		p.grpc.Stop()
		p.grpc = nil
	}
}

// plane is a management server with snapshots, as gateways are built on, which
// remembers what it was asked.
type plane struct {
	controlplane.Server
	t         *testing.T
	snapshots cache.SnapshotCache

	mu      sync.Mutex
	streams int
	headers []metadata.MD
	asked   []*discovery.DiscoveryRequest
	deltas  []*discovery.DeltaDiscoveryRequest
}

func newPlane(t *testing.T) *plane {
	p := &plane{t: t, snapshots: cache.NewSnapshotCache(true, cache.IDHash{}, nil)}
	opened := func(ctx context.Context, _ int64, _ string) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.streams++
		md, _ := metadata.FromIncomingContext(ctx)
		p.headers = append(p.headers, md)
		return nil
	}
	p.Server = controlplane.NewServer(t.Context(), p.snapshots, controlplane.CallbackFuncs{
		StreamOpenFunc:      opened,
		DeltaStreamOpenFunc: opened,
		StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.asked = append(p.asked, proto.CloneOf(r))
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discovery.DeltaDiscoveryRequest) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.deltas = append(p.deltas, proto.CloneOf(r))
			return nil
		},
	})
	return p
}

// set makes these the resources of the node.
func (p *plane) set(version string, configs ...*ratelimit.RateLimitConfig) {
	p.t.Helper()
	resources := make([]types.Resource, len(configs))
	for i, c := range configs {
		resources[i] = c
	}
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: resources})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.snapshots.SetSnapshot(p.t.Context(), node, snapshot); err != nil {
		p.t.Fatal(err)
	}
}

// request waits for the nth request of all streams.
func (p *plane) request(n int) *discovery.DiscoveryRequest {
	p.t.Helper()
	return nth(p, &p.asked, n)
}

func (p *plane) delta(n int) *discovery.DeltaDiscoveryRequest {
	p.t.Helper()
	return nth(p, &p.deltas, n)
}

func nth[R any](p *plane, of *[]R, n int) (r R) {
	p.t.Helper()
	testenv.Eventually(p.t, soon, func() bool {
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

// observed is what a source published, as its user sees it.
type observed struct {
	t       *testing.T
	mu      sync.Mutex
	tree    *descriptors.Tree
	domains string
	errs    []error // outcome of each load
}

// run runs a source until the test ends.
func run(t *testing.T, s *xds.Source) *observed {
	t.Helper()
	s.Log = slog.New(slog.DiscardHandler)
	if s.NodeID == "" {
		s.NodeID = node
	}
	if s.Backoff.Max == 0 {
		s.Backoff = quickly
	}
	o := &observed{t: t, domains: "none yet"}
	rules := &sources.Rules{
		Use: func(tree *descriptors.Tree) {
			var names []string
			for _, d := range tree.Domains() {
				names = append(names, d.Name)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.tree, o.domains = tree, strings.Join(names, " ")
		},
		Loaded: func(err error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.errs = append(o.errs, err)
		},
		Log: s.Log,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, rules.Publish) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return o
}

// become waits until these domains are in force.
func (o *observed) become(domains string) {
	o.t.Helper()
	testenv.Eventually(o.t, soon, func() bool { return o.now() == domains }, "in force: "+domains)
}

func (o *observed) now() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.domains
}

// dump is what /rlconfig shows.
func (o *observed) dump() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tree.Dump()
}

func (o *observed) loads() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.errs)
}

// refused waits for a load that is refused, after the first so many.
func (o *observed) refused(after int) (problems descriptors.Problems) {
	o.t.Helper()
	testenv.Eventually(o.t, soon, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, err := range o.errs[min(after, len(o.errs)):] {
			if errors.As(err, &problems) {
				return true
			}
		}
		return false
	}, "rules are refused")
	return problems
}

// rules is a resource with one limit per minute for each user.
func rules(name, domain string, perMinute uint32) *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: name, Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{
		Key:       "user",
		RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_MINUTE, RequestsPerUnit: perMinute},
	}}}
}

// wrong is a resource with a limit that has no unit.
func wrong(name, domain string) *ratelimit.RateLimitConfig {
	c := rules(name, domain, 1)
	c.Descriptors[0].RateLimit.Unit = ratelimit.RateLimitUnit_UNKNOWN
	return c
}
