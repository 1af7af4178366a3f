package service_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

const (
	ok   = pb.RateLimitResponse_OK
	over = pb.RateLimitResponse_OVER_LIMIT
)

// rig is the service behind a real gRPC connection, with the memory store on a
// clock that moves only when the test says so (pass).
type rig struct {
	t       testing.TB
	service *service.Service
	*operate.Operator
	client pb.RateLimitServiceClient
	conn   *grpc.ClientConn
	clock  *atomic.Int64 // µs
}

// config configures the service of a rig and its replies.
type config struct {
	service.Config
	Reply envoy.Reply
}

func start(t testing.TB, rules string, change ...func(*config)) *rig {
	t.Helper()
	clock := new(atomic.Int64)
	clock.Store(1_800_057_610_000_000) // ten seconds into a minute, an hour and a day
	store, err := memory.New(memory.Options{MaxKeys: 100_000, Now: clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config{Config: service.Config{Store: store}}
	for _, c := range change {
		c(&cfg)
	}
	s := service.New(cfg.Config)
	r := &rig{t: t, service: s, Operator: operate.New(s, strings.Clone), clock: clock}
	if rules != "" {
		r.load(rules)
	}
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(envoy.Codec()))
	limits := envoy.New(s, cfg.Reply, cfg.Caps)
	limits.Register(server)
	go server.Serve(l) //nolint:errcheck // ends with Stop
	r.conn, err = grpc.NewClient("passthrough:///service", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	r.client = pb.NewRateLimitServiceClient(r.conn)
	t.Cleanup(func() {
		r.conn.Close()
		server.Stop()
		store.Close()
	})
	return r
}

// served is d as Envoy's service.
func served(d service.Decider) *envoy.Server {
	s := envoy.New(d, envoy.Reply{}, service.Caps{})
	return s
}

func (r *rig) load(rules string) { r.loadCharging(descriptors.ChargeAlways, rules) }

// loadCharging loads rules whose domains have that charge unless they set another one.
// ChargeDenying is STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT.
func (r *rig) loadCharging(charge descriptors.Charge, rules string) {
	r.t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(rules)}}, yaml.Options{Charge: charge})
	if err != nil {
		r.t.Fatal(err)
	}
	r.service.SetTree(tree)
}

func (r *rig) pass(d time.Duration) { r.clock.Add(d.Microseconds()) }

func (r *rig) try(req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return r.client.ShouldRateLimit(ctx, req)
}

func (r *rig) call(req *pb.RateLimitRequest) *pb.RateLimitResponse {
	r.t.Helper()
	resp, err := r.try(req)
	if err != nil {
		r.t.Fatalf("ShouldRateLimit: %v", err)
	}
	if len(resp.Statuses) != len(req.Descriptors) {
		r.t.Fatalf("%d statuses for %d descriptors", len(resp.Statuses), len(req.Descriptors))
	}
	if resp.OverallCode == pb.RateLimitResponse_UNKNOWN {
		r.t.Fatal("the overall code is UNKNOWN")
	}
	return resp
}

// hit sends one descriptor to domain d and returns its status.
func (r *rig) hit(desc *rlcommon.RateLimitDescriptor) *pb.RateLimitResponse_DescriptorStatus {
	r.t.Helper()
	return r.call(request(desc)).Statuses[0]
}

func (r *rig) want(desc *rlcommon.RateLimitDescriptor, code pb.RateLimitResponse_Code, remaining uint32) {
	r.t.Helper()
	s := r.hit(desc)
	if s.Code != code || s.LimitRemaining != remaining {
		r.t.Fatalf("%v, %d remaining; want %v, %d", s.Code, s.LimitRemaining, code, remaining)
	}
}

func request(descs ...*rlcommon.RateLimitDescriptor) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: descs}
}

// desc is a descriptor of keys and values, which alternate.
func desc(keysAndValues ...string) *rlcommon.RateLimitDescriptor {
	d := &rlcommon.RateLimitDescriptor{}
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return d
}

func withHits(n uint64, d *rlcommon.RateLimitDescriptor) *rlcommon.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func refund(n uint64, d *rlcommon.RateLimitDescriptor) *rlcommon.RateLimitDescriptor {
	d.IsNegativeHits = true
	return withHits(n, d)
}

func withLimit(requests uint32, unit int32, multiplier *wrapperspb.UInt32Value, d *rlcommon.RateLimitDescriptor) *rlcommon.RateLimitDescriptor {
	d.Limit = &rlcommon.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: requests, Unit: typev3.RateLimitUnit(unit), UnitMultiplier: multiplier,
	}
	return d
}

// stuck is a store that does not answer before the context ends.
type stuck struct{ backends.Store }

func (s stuck) Apply(ctx context.Context, b *backends.Batch) error {
	<-ctx.Done()
	return b.Fail(backends.ErrUnavailable)
}

// seen is a store that keeps the operations that it was asked for.
type seen struct {
	backends.Store
	mu  sync.Mutex
	ops []backends.Op
}

func (s *seen) Unwrap() backends.Store { return s.Store }

func (s *seen) Apply(ctx context.Context, b *backends.Batch) error {
	s.mu.Lock()
	s.ops = append(s.ops, b.Ops...)
	s.mu.Unlock()
	return s.Store.Apply(ctx, b)
}

// under puts s between the service of a rig and its store.
func (s *seen) under(c *config) { s.Store, c.Store = c.Store, s }

// asked is a message as a question of operators.
func asked(message *pb.RateLimitRequest) *operate.Question {
	var q operate.Question
	_, _ = served(reader{&q.Request}).ShouldRateLimit(context.Background(), message)
	return &q
}

// reader keeps a request in place of deciding it.
type reader struct{ to *service.Request }

func (r reader) Decide(_ context.Context, request *service.Request) (*service.Outcome, error) {
	*r.to = *request
	r.to.Descriptors = slices.Clone(request.Descriptors)
	for i := range r.to.Descriptors {
		d := &r.to.Descriptors[i]
		d.Entries = slices.Clone(d.Entries)
	}
	return nil, errors.New("not decided")
}

func (r *rig) inspect(view operate.View, message *pb.RateLimitRequest) []explain.Descriptor {
	r.t.Helper()
	doc, err := r.Inspect(r.t.Context(), asked(message), view)
	if err != nil {
		r.t.Fatal(err)
	}
	return doc.Descriptors
}

func (r *rig) change(do operate.Action, message *pb.RateLimitRequest) []operate.Change {
	r.t.Helper()
	_, changes, err := r.Change(r.t.Context(), asked(message), do)
	if err != nil || len(changes) == 0 {
		r.t.Fatal(changes, err)
	}
	return changes
}

// only is the only limit of the only descriptor.
func only(t *testing.T, in []explain.Descriptor) explain.Limit {
	t.Helper()
	if len(in) != 1 || len(in[0].Limits) != 1 {
		t.Fatalf("got %+v", in)
	}
	return in[0].Limits[0]
}

func (r *rig) wantMatching(rule string, dryRun bool, want operate.Progress) {
	r.t.Helper()
	got, err := r.ResetMatching(r.t.Context(), "d", rule, dryRun, func(operate.Progress) error { return nil })
	if got.Scanned < got.Matched || got.Matched != want.Matched || got.Changed != want.Changed || err != nil {
		r.t.Errorf("%s: %+v, %v, want %+v", rule, got, err, want)
	}
}
