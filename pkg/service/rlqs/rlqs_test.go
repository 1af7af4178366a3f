package rlqs_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/service/rlqs"
	"example.org/rls/pkg/top"
)

// world is replicas that count in one store, and Envoys that are their clients.
type world struct {
	t        testing.TB
	store    backends.Store
	replicas []*replica
	lost     map[int]int // requests that crashed Envoys have let pass and not reported, by the second of the crash
}

type replica struct {
	service *service.Service
	quotas  *rlqs.Server
	envoy   *envoy.Server
	grpc    *grpc.Server
	conn    *grpc.ClientConn
	limits  rls.RateLimitServiceClient
	client  pb.RateLimitQuotaServiceClient
}

// start starts n replicas. It is called in a bubble of synctest, so that time is virtual.
func start(t testing.TB, n int, rules string, change ...func(*service.Config)) *world {
	t.Helper()
	store, err := memory.New(memory.Options{MaxKeys: 1_000_000, Now: func() int64 { return time.Now().UnixMicro() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w := &world{t: t, store: store, lost: map[int]int{}}
	for range n {
		w.open(store, change...)
	}
	w.load(rules)
	return w
}

// open adds a replica.
func (w *world) open(store backends.Store, change ...func(*service.Config)) {
	w.t.Helper()
	cfg := service.Config{Store: store, Caps: service.Caps{Descriptors: 128, Entries: 8}}
	for _, c := range change {
		c(&cfg)
	}
	s := service.New(cfg)
	e := envoy.New(s, envoy.Reply{}, cfg.Caps)
	r := &replica{service: s, envoy: e, quotas: rlqs.New(rlqs.Options{Service: s, Now: cfg.Store.Now, TTL: 15 * time.Second})}
	l := bufconn.Listen(1 << 20)
	r.grpc = grpc.NewServer(grpc.ForceServerCodecV2(envoy.Codec()))
	e.Register(r.grpc)
	r.quotas.Register(r.grpc)
	go r.grpc.Serve(l) //nolint:errcheck // ends with Stop
	var err error
	r.conn, err = grpc.NewClient("passthrough:///rls", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		w.t.Fatal(err)
	}
	r.limits, r.client = rls.NewRateLimitServiceClient(r.conn), pb.NewRateLimitQuotaServiceClient(r.conn)
	w.t.Cleanup(func() {
		r.conn.Close()
		r.grpc.Stop()
		l.Close()
	})
	w.replicas = append(w.replicas, r)
}

func (w *world) load(rules string) {
	w.t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(rules)}}, yaml.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range w.replicas {
		r.service.SetTree(tree)
	}
}

// hit asks ShouldRateLimit for so many hits, one request each, and returns how many passed.
func (w *world) hit(n int, key, value string) (passed int) {
	for range n {
		m, err := w.replicas[0].limits.ShouldRateLimit(w.t.Context(), &rls.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
		}})
		if err != nil {
			w.t.Fatal(err)
		}
		if m.OverallCode == rls.RateLimitResponse_OK {
			passed++
		}
	}
	return passed
}

// stream is a stream and the newest assignments on it.
type stream struct {
	t testing.TB
	pb.RateLimitQuotaService_StreamRateLimitQuotasClient
	cancel  context.CancelFunc
	replies chan *pb.RateLimitQuotaResponse
	err     chan error
}

func (w *world) stream(replica int) *stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	s := &stream{t: w.t, cancel: cancel, replies: make(chan *pb.RateLimitQuotaResponse, 1000), err: make(chan error, 1)}
	var err error
	if s.RateLimitQuotaService_StreamRateLimitQuotasClient, err = w.replicas[replica].client.StreamRateLimitQuotas(ctx); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				s.err <- err
				return
			}
			s.replies <- m
		}
	}()
	return s
}

// usage is a usage of the bucket {key: value, …}.
func usage(elapsed time.Duration, allowed, denied uint64, keysAndValues ...string) *pb.RateLimitQuotaUsageReports_BucketQuotaUsage {
	id := &pb.BucketId{Bucket: map[string]string{}}
	for i := 0; i < len(keysAndValues); i += 2 {
		id.Bucket[keysAndValues[i]] = keysAndValues[i+1]
	}
	return &pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: id, TimeElapsed: durationpb.New(elapsed), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}
}

func reports(domain string, usages ...*pb.RateLimitQuotaUsageReports_BucketQuotaUsage) *pb.RateLimitQuotaUsageReports {
	return &pb.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: usages}
}

// report sends a report of domain d and returns the actions that answer it, as text.
func (s *stream) report(usages ...*pb.RateLimitQuotaUsageReports_BucketQuotaUsage) string {
	s.t.Helper()
	if err := s.Send(reports("d", usages...)); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
	return s.pushed()
}

// pushed is the actions that have come, as text.
func (s *stream) pushed() string {
	var all []string
	for {
		select {
		case m := <-s.replies:
			for _, a := range m.BucketAction {
				all = append(all, text(a))
			}
			continue
		default:
		}
		return strings.Join(all, ", ")
	}
}

// text writes an action: allow 15s, deny 15s, abandon, or max+perFill/fill ttl.
func text(a *pb.RateLimitQuotaResponse_BucketAction) string {
	if a.GetAbandonAction() != nil {
		return "abandon"
	}
	q := a.GetQuotaAssignmentAction()
	strategy, ttl := q.GetRateLimitStrategy(), q.GetAssignmentTimeToLive().AsDuration()
	if b := strategy.GetTokenBucket(); b != nil {
		return fmt.Sprintf("%d+%d/%v %v", b.MaxTokens, b.TokensPerFill.GetValue(), b.FillInterval.AsDuration(), ttl)
	}
	if strategy.GetBlanketRule() == typev3.RateLimitStrategy_DENY_ALL {
		return fmt.Sprint("deny ", ttl)
	}
	return fmt.Sprint("allow ", ttl)
}

const rules = `
domain: d
descriptors:
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: second, rate_limit: {unit: second, requests_per_unit: 100}}
  - {key: bucket, rate_limit: {unit: minute, requests_per_unit: 60, strategy: token_bucket, burst: 100}}
  - {key: none, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: both
    rate_limits:
      - {unit: second, requests_per_unit: 10}
      - {unit: hour, requests_per_unit: 100}
  - key: near
    rate_limits:
      - {unit: second, requests_per_unit: 10}
      - {unit: hour, requests_per_unit: 61}
  - key: two
    descriptors:
      - {key: user, rate_limit: {unit: hour, requests_per_unit: 50}}
`

func pass(d time.Duration) { <-time.After(d) } // of the bubble's fake clock

// in runs a test in virtual time that begins 20 seconds into a minute.
func in(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pass(20*time.Second + 100*time.Millisecond)
		test(t)
	})
}

// TestAssignments: what one Envoy is told, by the rule of its bucket.
func TestAssignments(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		for _, c := range []struct{ key, first, again string }{
			{"hour", "99+1/24h0m0s 15s", "deny 15s, 59+1/24h0m0s 15s"},
			{"second", "100+100/1s 15s", "100+100/1s 15s"},
			{"bucket", "99+60/1m0s 15s", "deny 15s, 60+60/1m0s 15s"},
			{"none", "deny 15s", "deny 15s"},
			{"free", "allow 15s", "allow 15s"},
			{"shadow", "allow 15s", "allow 15s"},
			{"both", "10+10/1s 15s", "deny 15s, 10+49/5s 15s"}, // 59 remain of the hour
			{"near", "10+10/1s 15s", "deny 15s, 10+10/5s 15s"}, // 20 remain of the hour
			{"other", "allow 1m0s", "allow 1m0s"},
		} {
			s := w.stream(0)
			if got := s.report(usage(0, 1, 0, c.key, "v")); got != c.first {
				t.Errorf("%s: %s, want %s", c.key, got, c.first)
			}
			pass(5 * time.Second)
			if got := s.report(usage(5*time.Second, 40, 0, c.key, "v")); got != c.again {
				t.Errorf("%s after 40 hits: %s, want %s", c.key, got, c.again)
			}
			s.cancel()
		}
	})
}

// TestTables: a bucket has the limit of its row, and a new table assigns it anew.
func TestTables(t *testing.T) {
	t.Chdir(t.TempDir())
	table := func(text string) {
		if err := os.WriteFile("tenants.csv", []byte("value,plan\n"+text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	const rules = "domain: d\nplans: {free: {unit: second, requests_per_unit: 10}, pro: {unit: second, requests_per_unit: 80}}\ndescriptors: [{key: tenant, rate_limit: {plan: free, table: tenants.csv}}]\n"
	table("acme,pro\nopen,unlimited\n")
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		s := w.stream(0)
		for tenant, want := range map[string]string{"acme": "80+80/1s 15s", "open": "allow 15s", "new": "10+10/1s 15s"} {
			if got := s.report(usage(0, 1, 0, "tenant", tenant)); got != want {
				t.Errorf("%s: %s, want %s", tenant, got, want)
			}
		}
		table("new,pro\n")
		w.load(rules)
		pass(5 * time.Second)
		if got := s.report(usage(5*time.Second, 1, 0, "tenant", "new")); !strings.HasSuffix(got, "80+80/1s 15s") {
			t.Errorf("new has the plan pro now: %s", got)
		}
	})
}

// TestOtherCounts: ShouldRateLimit and reports count in the same cells.
func TestOneCounter(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		if passed := w.hit(30, "hour", "v"); passed != 30 {
			t.Fatalf("%d of 30 passed", passed)
		}
		s := w.stream(0)
		if got := s.report(usage(0, 10, 0, "hour", "v")); got != "60+1/24h0m0s 15s" {
			t.Errorf("after 40 hits: %s", got)
		}
		if passed := w.hit(100, "hour", "v"); passed != 60 {
			t.Errorf("%d more passed, want 60", passed)
		}
		pass(5 * time.Second)
		if got := s.report(usage(5*time.Second, 0, 1, "hour", "v")); !strings.HasSuffix(got, "deny 15s") {
			t.Errorf("nothing remains: %s", got)
		}
	})
}

// TestEntriesInAnyOrder: the entries of a bucket are a descriptor in the order of their keys.
func TestEntriesInAnyOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		if got := w.stream(0).report(usage(0, 1, 0, "user", "ann", "two", "")); got != "49+1/24h0m0s 15s" {
			t.Error(got)
		}
	})
}

// TestPartOfAWindow: of hits of more than a window, the window's part is charged.
func TestPartOfAWindow(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		s := w.stream(0)
		s.report(usage(0, 1, 0, "second", "v"))
		pass(5 * time.Second)
		s.report(usage(5*time.Second, 200, 0, "second", "v"))
		if passed := w.hit(100, "second", "v"); passed != 60 {
			t.Errorf("%d passed, want 100 less a fifth of 200", passed)
		}
	})
}

// TestWrongReports: they end the stream and charge nothing.
func TestWrongReports(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		good := usage(0, 1, 0, "hour", "v")
		broken := usage(0, 1, 0, "hour", "v")
		broken.TimeElapsed.Nanos = -1
		impossible := usage(0, 1, 0, "hour", "v")
		impossible.TimeElapsed.Nanos = 2_000_000_000
		for _, c := range []struct {
			want string
			all  []*pb.RateLimitQuotaUsageReports
		}{
			{"domain must not be empty", []*pb.RateLimitQuotaUsageReports{reports("", good)}},
			{"domain must stay", []*pb.RateLimitQuotaUsageReports{reports("d", good), reports("e", good)}},
			{"bucket_quota_usages must not be empty", []*pb.RateLimitQuotaUsageReports{reports("d")}},
			{"bucket_quota_usages[0]: bucket_id.bucket must not be empty", []*pb.RateLimitQuotaUsageReports{reports("d", usage(0, 1, 0))}},
			{"bucket_quota_usages[1]: bucket_id.bucket must not be empty", []*pb.RateLimitQuotaUsageReports{reports("d", good, &pb.RateLimitQuotaUsageReports_BucketQuotaUsage{})}},
			{"has an empty key", []*pb.RateLimitQuotaUsageReports{reports("d", usage(0, 1, 0, "", "v"))}},
			{"time_elapsed must be", []*pb.RateLimitQuotaUsageReports{reports("d", broken)}},
			{"time_elapsed must be", []*pb.RateLimitQuotaUsageReports{reports("d", impossible)}},
			{"time_elapsed must be", []*pb.RateLimitQuotaUsageReports{reports("d", usage(-time.Second, 1, 0, "hour", "v"))}},
		} {
			s := w.stream(0)
			for _, m := range c.all {
				_ = s.Send(m)
			}
			err := <-s.err
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want INVALID_ARGUMENT with %q", err, c.want)
			}
		}
		if passed := w.hit(100, "hour", "v"); passed != 99 { // the good report before that of domain e
			t.Errorf("%d passed, want 99", passed)
		}
		s := w.stream(0)
		s.report(good)
		if err := s.Send(reports("", usage(5*time.Second, 1, 0, "hour", "v"))); err != nil { // later reports may leave it out
			t.Error(err)
		}
		if synctest.Wait(); s.pushed() == "" {
			t.Error("no answer")
		}
	})
}

// TestReloads: assignments follow rules within an interval.
func TestReloads(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		s := w.stream(0)
		s.report(usage(0, 1, 0, "second", "v"), usage(0, 1, 0, "hour", "v"))
		w.load("domain: d\ndescriptors:\n  - {key: second, rate_limit: {unit: second, requests_per_unit: 50}}\n")
		pass(6 * time.Second)
		if got := s.pushed(); got != "50+50/1s 15s, abandon" && got != "abandon, 50+50/1s 15s" {
			t.Errorf("after the reload: %s", got)
		}
		if got := s.report(usage(0, 1, 0, "hour", "v")); got != "allow 1m0s" {
			t.Errorf("the rule is gone: %s", got)
		}
	})
}

// TestReloadsOfOneLimit: a limit that a reload changes a little is assigned anew, too, and one that
// it does not change keeps its assignment until a report tells how many hits were used.
func TestReloadsOfOneLimit(t *testing.T) {
	const limit = "domain: d\ndescriptors:\n  - {key: k, rate_limit: {%s}}\n"
	for _, c := range []struct{ before, first, after, then string }{
		{"unit: second, requests_per_unit: 10, strategy: token_bucket, burst: 40", "40+10/1s 15s", "unit: second, requests_per_unit: 10, strategy: token_bucket, burst: 2", "2+10/1s 15s"},
		{"unit: second, requests_per_unit: 100", "100+100/1s 15s", "unit: second, requests_per_unit: 109", "109+109/1s 15s"},
		{"unit: second, requests_per_unit: 100", "100+100/1s 15s", "unit: second, requests_per_unit: 100", "100+100/1s 15s"},
	} {
		in(t, func(t *testing.T) {
			w := start(t, 1, fmt.Sprintf(limit, c.before))
			s := w.stream(0)
			if got := s.report(usage(0, 1, 0, "k", "v")); got != c.first {
				t.Errorf("%s: %s, want %s", c.before, got, c.first)
			}
			w.load(fmt.Sprintf(limit, c.after))
			pass(5 * time.Second)
			if got := s.report(usage(5*time.Second, 5, 0, "k", "v")); !strings.HasSuffix(got, c.then) {
				t.Errorf("%s after %s: %s, want %s", c.after, c.before, got, c.then)
			}
		})
	}
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		a := w.stream(0)
		a.report(usage(0, 1, 0, "hour", "v"))
		a.report(usage(0, 0, 0, "hour", "v"))
		w.stream(0).report(usage(0, 1, 0, "hour", "v")) // assigns one of the hits that a holds
		w.load(rules + "  - {key: another, rate_limit: {unit: hour, requests_per_unit: 1}}\n")
		pass(6 * time.Second)
		if got := a.pushed(); got != "" {
			t.Errorf("a reload of another rule: %s", got)
		}
	})
}

// TestTheNextWindow: what is denied until the window ends has its share at its end, and after a
// reset within an interval.
func TestTheNextWindow(t *testing.T) {
	in(t, func(t *testing.T) { // 20.1 s into a minute
		w := start(t, 1, rules)
		s := w.stream(0)
		s.report(usage(0, 1, 0, "minute", "v"))
		if got := s.report(usage(0, 999, 0, "minute", "v")); got != "deny 15s" {
			t.Error(got)
		}
		pass(39800 * time.Millisecond)
		if got := s.pushed(); strings.Trim(got, "deny15s, ") != "" || strings.Count(got, "deny 15s") < 3 {
			t.Errorf("before the end of the window: %s", got)
		}
		pass(200 * time.Millisecond)
		if got := s.pushed(); got != "1000+1/24h0m0s 15s" {
			t.Errorf("at its end: %s", got)
		}
		s.report(usage(5*time.Second, 1000, 0, "minute", "v"))
		request := asking("minute")
		if _, _, err := operate.New(w.replicas[0].service, strings.Clone).Change(t.Context(), request, operate.Reset); err != nil {
			t.Fatal(err)
		}
		pass(6 * time.Second)
		if got := s.pushed(); got != "1000+1/24h0m0s 15s" {
			t.Errorf("after a reset: %s", got)
		}
	})
}

// TestTheNextWindowIsOfThoseWhoAsk: a bucket that was denied and has not been reported for its ttl
// takes nothing of the next window from one that is reported.
func TestTheNextWindowIsOfThoseWhoAsk(t *testing.T) {
	in(t, func(t *testing.T) { // 20.1 s into a minute
		w := start(t, 1, rules)
		asks := w.stream(0)
		for range 20 { // so that one is looked at before asks
			silent := w.stream(0)
			silent.report(usage(0, 1, 0, "minute", "v"))
			silent.report(usage(5*time.Second, 999, 5000, "minute", "v"))
		}
		for range 9 {
			asks.report(usage(5*time.Second, 0, 20, "minute", "v"))
			pass(5 * time.Second)
		}
		var hits int
		got := asks.report(usage(5*time.Second, 0, 20, "minute", "v"))
		if _, err := fmt.Sscanf(got[strings.LastIndex(", "+got, ", "):], "%d+", &hits); err != nil || hits < 900 {
			t.Errorf("who asks: %s", got)
		}
	})
}

// TestStreamsEnd: the share of a stream that ends goes to one that reports its bucket anew, and
// else comes back within two intervals; that of a bucket that is not reported within its ttl.
func TestStreamsEnd(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		a, b := w.stream(0), w.stream(0)
		a.report(usage(0, 1, 0, "hour", "v"))
		if got := b.report(usage(0, 1, 0, "hour", "v")); got != "1+1/24h0m0s 15s" {
			t.Errorf("another one holds all: %s", got)
		}
		a.cancel()
		synctest.Wait()
		c := w.stream(0)
		if got := c.report(usage(5*time.Second, 10, 0, "hour", "v")); !strings.HasPrefix(got, "deny 15s, 7") && !strings.HasPrefix(got, "deny 15s, 8") {
			t.Errorf("the share of an ended stream: %s", got)
		}
		c.cancel()
		pass(11 * time.Second)
		if got := b.report(usage(5*time.Second, 1, 0, "hour", "v")); !strings.HasSuffix(got, "deny 15s, 87+1/24h0m0s 15s") {
			t.Errorf("two intervals after the end: %s", got)
		}
		pass(16 * time.Second)
		if got := b.pushed(); !strings.HasSuffix(got, "abandon") {
			t.Errorf("not reported: %s", got)
		}
		if got := w.stream(0).report(usage(0, 1, 0, "hour", "v")); got != "86+1/24h0m0s 15s" {
			t.Errorf("after a silent bucket: %s", got)
		}
		streams, buckets, assigned := w.replicas[0].quotas.Counts()
		if streams != 2 || buckets != 1 || len(assigned) != 1 || assigned["d.hour"] != 86.0/5 {
			t.Errorf("%d streams, %d buckets, %v", streams, buckets, assigned)
		}
	})
}

// TestALookGivesNothingTwice: between reports nobody knows what an Envoy has used of its share, so
// it gets no other one that begins full.
func TestALookGivesNothingTwice(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		a := w.stream(0)
		a.report(usage(0, 1, 0, "hour", "v"))
		w.stream(0).report(usage(0, 1, 0, "hour", "v")) // assigns one of the hits that a holds
		pass(9 * time.Second)
		if got := a.pushed(); got != "" {
			t.Errorf("without a report: %s", got)
		}
	})
}

// TestSuccessors: what an Envoy may have used before its stream ended stays its own, when another
// one takes its place.
func TestSuccessors(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		a := w.stream(0)
		a.report(usage(0, 1, 0, "minute", "v"))
		pass(5 * time.Second)
		a.report(usage(5*time.Second, 250, 0, "minute", "v")) // 50 a second
		pass(4 * time.Second)
		a.cancel()
		synctest.Wait()
		if got := w.stream(0).report(usage(0, 1, 0, "minute", "v")); got != "deny 15s, 519+1/24h0m0s 15s" { // 749 less 230
			t.Errorf("another Envoy: %s", got)
		}
	})
}

// away is a store that does not answer while it is away.
type away struct {
	backends.Store
	is atomic.Bool
}

func (s *away) Apply(ctx context.Context, b *backends.Batch) error {
	if s.is.Load() {
		return b.Fail(backends.ErrUnavailable)
	}
	return s.Store.Apply(ctx, b)
}

// TestStoreAway: on_error says what Envoys are told while the store is away.
func TestStoreAway(t *testing.T) {
	in(t, func(t *testing.T) {
		store := new(away)
		w := start(t, 1, `
domain: d
descriptors:
  - {key: error, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: allow, rate_limit: {unit: hour, requests_per_unit: 100, on_error: allow}}
  - {key: deny, rate_limit: {unit: hour, requests_per_unit: 100, on_error: deny}}
`, func(c *service.Config) { store.Store, c.Store = c.Store, store })
		for _, c := range []struct{ key, away, back string }{
			{"error", "", "deny 15s, 89+1/24h0m0s 15s"},
			{"allow", "allow 15s", "89+1/24h0m0s 15s"},
			{"deny", "deny 15s", "89+1/24h0m0s 15s"},
		} {
			store.is.Store(false)
			s := w.stream(0)
			s.report(usage(0, 1, 0, c.key, "v"))
			store.is.Store(true)
			if got := s.report(usage(time.Second, 10, 0, c.key, "v")); got != c.away {
				t.Errorf("%s: %s, want %s", c.key, got, c.away)
			}
			store.is.Store(false)
			if got := s.report(usage(time.Second, 10, 0, c.key, "v")); got != c.back {
				t.Errorf("%s, and the store is back: %s, want %s", c.key, got, c.back)
			}
			s.cancel()
		}
	})
}

// TestALongOutage: nothing is assigned during it, a bucket that is reported is not abandoned, and
// afterwards the share is that of the other replica's reports, too.
func TestALongOutage(t *testing.T) {
	in(t, func(t *testing.T) {
		store := new(away)
		w := start(t, 1, rules, func(c *service.Config) { store.Store, c.Store = c.Store, store })
		w.open(w.store)
		w.load(rules)
		s, other := w.stream(0), w.stream(1)
		s.report(usage(0, 1, 0, "hour", "v"))
		store.is.Store(true)
		for range 4 {
			pass(5 * time.Second)
			if got := s.report(usage(5*time.Second, 1, 0, "hour", "v")); got != "" {
				t.Errorf("during an outage: %s", got)
			}
		}
		if got := other.report(usage(0, 9, 0, "hour", "v")); got != "90+1/24h0m0s 15s" { // the other's share has come back
			t.Errorf("on the other replica: %s", got)
		}
		store.is.Store(false)
		if got := s.report(usage(0, 0, 0, "hour", "v")); got != "deny 15s, 1+1/24h0m0s 15s" {
			t.Errorf("the store is back: %s", got)
		}
	})
}

// TestGrantsAndResets of another replica reach an Envoy to which nothing remains within an interval.
func TestGrantsAndResets(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 2, rules)
		s := w.stream(0)
		s.report(usage(0, 1, 0, "hour", "v"))
		if got := s.report(usage(5*time.Second, 99, 0, "hour", "v")); got != "deny 15s" {
			t.Fatal(got)
		}
		request := asking("hour")
		for _, c := range []struct {
			do   operate.Action
			want string
		}{{operate.Grant(operate.Granting{Hits: 20}), "20+1/24h0m0s 15s"}, {operate.Reset, "100+1/24h0m0s 15s"}} {
			if _, _, err := operate.New(w.replicas[1].service, strings.Clone).Change(t.Context(), request, c.do); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Second)
			if got := s.pushed(); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			s.report(usage(5*time.Second, 20, 0, "hour", "v"))
		}
	})
}

// TestDemandOfShouldRateLimit: what ShouldRateLimit lets pass of a limit has a share of it.
func TestDemandOfShouldRateLimit(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		s := w.stream(0)
		s.report(usage(0, 1, 0, "minute", "v"))
		pass(4 * time.Second)
		w.hit(300, "minute", "v")
		pass(time.Second)
		if got := s.report(usage(5*time.Second, 99, 0, "minute", "v")); !strings.HasSuffix(got, "deny 15s, 149+1/24h0m0s 15s") { // a quarter of 600
			t.Errorf("a quarter of the demand: %s", got)
		}
	})
}

// TestDemandAfterAReset: it does not hide behind the hits that were reported before.
func TestDemandAfterAReset(t *testing.T) {
	for _, strategy := range []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket"} {
		for _, do := range []operate.Action{operate.Reset, operate.Grant(operate.Granting{Hits: 300})} {
			in(t, func(t *testing.T) {
				w := start(t, 1, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1000, strategy: "+strategy+"}}]\n")
				s := w.stream(0)
				s.report(usage(0, 300, 0, "k", "v"))
				request := asking("k")
				if _, _, err := operate.New(w.replicas[0].service, strings.Clone).Change(t.Context(), request, do); err != nil {
					t.Fatal(err)
				}
				for range 4 {
					pass(4 * time.Second)
					w.hit(50, "k", "v")
					pass(time.Second)
					s.report(usage(5*time.Second, 10, 0, "k", "v"))
				}
				pass(4 * time.Second)
				w.hit(50, "k", "v")
				pass(time.Second)
				got := s.report(usage(5*time.Second, 10, 0, "k", "v"))
				var hits int
				if _, err := fmt.Sscanf(got, "deny 15s, %d+", &hits); err != nil || hits > 200 { // a fifth of 700
					t.Errorf("%s: a fifth of the demand: %s", strategy, got)
				}
			})
		}
	}
}

// TestDemandWithinASecond: an Envoy that uses all of a limit leaves a share to ShouldRateLimit, and
// has all again when nobody asks any more, even if a bucket is still far from full.
func TestDemandWithinASecond(t *testing.T) {
	for _, limit := range []string{"", ", strategy: sliding_window", ", strategy: token_bucket", ", strategy: token_bucket, burst: 1000"} {
		in(t, func(t *testing.T) {
			pass(40 * time.Second)
			w := start(t, 1, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 100"+limit+"}}]\n")
			p := []*proxy{w.proxy(0)}
			for _, c := range []struct {
				asks       int // ShouldRateLimit, each second
				seconds    int
				most, less int // hits of the Envoy, each second
			}{{0, 20, 101, 95}, {100, 40, 70, 40}, {0, 30, 101, 80}} {
				var passed [][]int
				for range c.seconds {
					one := 0
					for range 10 {
						p[0].tick()
						one += p[0].request(10, "k", "v")
						w.hit(c.asks/10, "k", "v")
						pass(time.Second / 10)
					}
					passed = append(passed, []int{one})
				}
				if n := sum(passed[c.seconds-10:], -1) / 10; n > c.most || n < c.less {
					t.Errorf("%q, ShouldRateLimit asks %d times: %d, want %d to %d", limit, c.asks, n, c.less, c.most)
				}
			}
		})
	}
}

// TestAnEnvoyThatReadsNothing: who looks at the buckets does not wait for it.
func TestAnEnvoyThatReadsNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		const buckets = 3000
		w := start(t, 1, rules)
		s, err := w.replicas[0].client.StreamRateLimitQuotas(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := reports("d")
		for i := range buckets {
			m.BucketQuotaUsages = append(m.BucketQuotaUsages, usage(0, 1, 0, "second", fmt.Sprint(i)))
		}
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the answer is longer than HTTP/2 lets a server send ahead
		if _, n, assigned := w.replicas[0].quotas.Counts(); n != buckets || assigned["d.second"] != 100*buckets {
			t.Errorf("%d buckets, %v", n, assigned)
		}
	})
}

// TestReportsAreObserved: a report is a request with its hits as the cost, and the table of heavy
// hitters has the shares of its bucket.
func TestReportsAreObserved(t *testing.T) {
	in(t, func(t *testing.T) {
		var w *world
		heavy := top.New(top.Options{Keys: 10, StoredKey: strings.Clone, Assigned: func(domain string, entries []descriptors.Entry) (int64, float64) {
			return w.replicas[0].quotas.Assigned(domain, entries)
		}})
		w = start(t, 1, rules, func(c *service.Config) { c.Observers = []service.Observer{heavy} })
		w.stream(0).report(usage(0, 20, 7, "hour", "v"))
		rows := heavy.Table(top.Query{By: "cost", N: 10}).Rows
		if len(rows) != 1 || rows[0].Cost != 20 || rows[0].Hits != 1 || rows[0].Buckets != 1 || rows[0].Assigned != 80.0/5 || rows[0].Rule != "d.hour" {
			t.Errorf("%+v", rows)
		}
	})
}

func TestAssigned(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		w.stream(0).report(usage(0, 1, 0, "two", "", "user", "ann"))
		entries := []descriptors.Entry{{Key: "user", Value: "ann"}, {Key: "two"}}
		if buckets, rate := w.replicas[0].quotas.Assigned("d", entries); buckets != 1 || rate != 49.0/5 {
			t.Errorf("%d buckets, %v", buckets, rate)
		}
	})
}

// FuzzStream: no report breaks a stream but with INVALID_ARGUMENT, and none gives more than remains.
func FuzzStream(f *testing.F) {
	for _, m := range []*pb.RateLimitQuotaUsageReports{
		reports("d", usage(0, 1, 0, "hour", "v"), usage(5*time.Second, math.MaxUint64, math.MaxUint64, "second", "v"), usage(time.Hour, 7, 7, "other", "v")),
		reports("d", usage(-1, 1, 0, "hour", "v")), reports("", usage(0, 1, 0, "hour", "v")), reports("d", usage(0, 1, 0)),
		reports("d", usage(5*time.Second, 5, 5, "both", "v"), usage(5*time.Second, 5, 5, "both", "v"), usage(0, 5, 5, "bucket", "v")),
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
		f.Add(b, bytes.ReplaceAll(b, []byte("hour"), []byte("hou\xff")))
		f.Add(bytes.ReplaceAll(b, []byte("\x01v"), []byte("\x01\xff")), b)
	}
	w := start(f, 1, rules)
	request := asking("hour")
	used := func(t *testing.T) int64 {
		seen, err := operate.New(w.replicas[0].service, strings.Clone).Inspect(t.Context(), request, operate.Look)
		if err != nil {
			t.Fatal(err)
		}
		return seen.Descriptors[0].Limits[0].Count
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		stream, before := &wire{ctx: t.Context(), messages: [][]byte{first, second}}, used(t)
		err := w.replicas[0].quotas.StreamRateLimitQuotas(stream)
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
			t.Fatal(err)
		}
		if after := used(t); err != nil && len(stream.replies) == 0 && after > before {
			t.Fatalf("a wrong report is charged: %d after %d", after, before)
		}
		for _, m := range stream.replies {
			for _, a := range m.BucketAction {
				q := a.GetQuotaAssignmentAction()
				b := q.GetRateLimitStrategy().GetTokenBucket()
				if len(a.BucketId.GetBucket()) == 0 || a.GetAbandonAction() == nil && q.GetAssignmentTimeToLive().GetSeconds() < 1 {
					t.Fatal(a)
				}
				if b != nil && (b.MaxTokens < 1 || b.MaxTokens > 1000 || b.TokensPerFill.GetValue() < 1 || b.FillInterval.GetSeconds() < 1) {
					t.Fatal(a)
				}
			}
		}
	})
}

// asking asks about the descriptor {key: v}.
func asking(key string) *operate.Question {
	return &operate.Question{Request: service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: key, Value: "v"}}}}}}
}
