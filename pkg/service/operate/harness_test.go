package operate_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

// rig is a service and its operator, with the memory store on a clock that moves only when the test
// says so (pass).
type rig struct {
	t       testing.TB
	service *service.Service
	*operate.Operator
	clock *atomic.Int64 // µs
}

func start(t testing.TB, rules string, change ...func(*service.Config)) *rig {
	t.Helper()
	clock := new(atomic.Int64)
	clock.Store(1_800_057_610_000_000) // ten seconds into a minute, an hour and a day
	store, err := memory.New(memory.Options{MaxKeys: 100_000, Now: clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	cfg := service.Config{Store: store}
	for _, c := range change {
		c(&cfg)
	}
	s := service.New(cfg)
	r := &rig{t: t, service: s, Operator: operate.New(s, strings.Clone), clock: clock}
	if rules != "" {
		r.load(rules)
	}
	return r
}

func (r *rig) load(rules string) {
	r.t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(rules)}}, yaml.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.service.SetTree(tree)
}

func (r *rig) pass(d time.Duration) { r.clock.Add(d.Microseconds()) }

// answer is the answer to a request of one descriptor.
type answer struct {
	over      bool
	remaining int64
}

// hit decides one descriptor of domain d.
func (r *rig) hit(d service.Descriptor) answer {
	r.t.Helper()
	o, err := r.service.Evaluate(context.Background(), &request(d).Request)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{o.Over, o.Statuses[0].Remaining}
}

func (r *rig) want(d service.Descriptor, want answer) {
	r.t.Helper()
	if got := r.hit(d); got != want {
		r.t.Fatalf("got %+v, want %+v", got, want)
	}
}

func request(all ...service.Descriptor) *operate.Question {
	return &operate.Question{Request: service.Request{Domain: "d", Descriptors: all}}
}

// desc is a descriptor of keys and values, which alternate.
func desc(keysAndValues ...string) (d service.Descriptor) {
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Entries = append(d.Entries, descriptors.Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return d
}

func withHits(n uint64, d service.Descriptor) service.Descriptor {
	d.Hits = &n
	return d
}

func refund(n uint64, d service.Descriptor) service.Descriptor {
	d.Refund = true
	return withHits(n, d)
}

func withLimit(requests uint32, unit descriptors.Unit, d service.Descriptor) service.Descriptor {
	d.Limit = &service.Override{RequestsPerUnit: requests, Unit: unit, Multiplier: 1}
	return d
}

// ask inspects a request. Its error is that of gRPC.
func (r *rig) ask(view operate.View, q *operate.Question) (explain.Document, error) {
	doc, err := r.Inspect(r.t.Context(), q, view)
	return doc, envoy.Error(err)
}

func (r *rig) inspect(view operate.View, q *operate.Question) []explain.Descriptor {
	r.t.Helper()
	doc, err := r.ask(view, q)
	if err != nil {
		r.t.Fatal(err)
	}
	return doc.Descriptors
}

// try changes cells. Its error is that of gRPC.
func (r *rig) try(do operate.Action, q *operate.Question) ([]operate.Change, error) {
	_, changes, err := r.Operator.Change(r.t.Context(), q, do)
	return changes, envoy.Error(err)
}

func (r *rig) change(do operate.Action, q *operate.Question) []operate.Change {
	r.t.Helper()
	changes, err := r.try(do, q)
	if err != nil {
		r.t.Fatal(err)
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

// changed is the only change.
func changed(t *testing.T, changes []operate.Change) operate.Change {
	t.Helper()
	if len(changes) != 1 {
		t.Fatalf("got %+v", changes)
	}
	return changes[0]
}

// failing is a store that is away.
type failing struct{ backends.Store }

func (failing) Apply(_ context.Context, b *backends.Batch) error {
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
func (s *seen) under(c *service.Config) { s.Store, c.Store = c.Store, s }
