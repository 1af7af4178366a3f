package integration

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.org/rls/internal/testenv"
)

const quotaRules = `
domain: edge
descriptors:
  - {key: window, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: sliding, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_window}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_log}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 100, strategy: token_bucket}}
  - {key: second, rate_limit: {unit: second, requests_per_unit: 50}}
  - {key: debt, rate_limit: {unit: year, requests_per_unit: 100, overdraft: 50}}
`

// quotaStream is a stream of Envoy's quota protocol.
type quotaStream struct {
	t      *testing.T
	client quota.RateLimitQuotaServiceClient
	quota.RateLimitQuotaService_StreamRateLimitQuotasClient
}

func (s *service) quotas() *quotaStream {
	s.t.Helper()
	client := quota.NewRateLimitQuotaServiceClient(dial(s.t, s.addrs["gRPC"], nil))
	return (&quotaStream{t: s.t.(*testing.T), client: client}).another()
}

// another is another stream on the same connection.
func (s *quotaStream) another() *quotaStream {
	s.t.Helper()
	stream, err := s.client.StreamRateLimitQuotas(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return &quotaStream{s.t, s.client, stream}
}

// reportMany reports n buckets for the first time, and waits for their assignments.
func (s *quotaStream) reportMany(n int) {
	m := &quota.RateLimitQuotaUsageReports{Domain: "edge"}
	for i := range n {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &quota.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: &quota.BucketId{Bucket: map[string]string{"second": strconv.Itoa(i)}}, TimeElapsed: &durationpb.Duration{}, NumRequestsAllowed: 1,
		})
	}
	if err := s.Send(m); err != nil {
		s.t.Error(err)
		return
	}
	for assigned := 0; assigned < n; {
		reply, err := s.Recv()
		if err != nil {
			s.t.Error(err)
			return
		}
		assigned += len(reply.BucketAction)
	}
}

// report reports the bucket {key: v}, and returns the max_tokens that it is assigned; 0 if it is denied.
func (s *quotaStream) report(elapsed time.Duration, allowed, denied uint64, key string) uint32 {
	s.t.Helper()
	err := s.Send(&quota.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &quota.BucketId{Bucket: map[string]string{key: "v"}}, TimeElapsed: durationpb.New(elapsed), NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}}})
	if err != nil {
		s.t.Fatal(err)
	}
	reply, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	last := reply.BucketAction[len(reply.BucketAction)-1]
	return last.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetMaxTokens()
}

// TestQuotasOnStores: two replicas that count in one store share a limit by demand.
func TestQuotasOnStores(t *testing.T) {
	t.Parallel()
	for _, c := range stores {
		switch c.name {
		case "memory", "Redis", "Redis cluster", "memcached", "two memcacheds":
		default:
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			settings, _ := c.start(t)
			one := serve(t, quotaRules, settings...)
			other := one
			if c.name != "memory" {
				other = serve(t, quotaRules, settings...)
			}
			for _, key := range []string{"window", "sliding", "log", "bucket"} {
				a, b := one.quotas(), other.quotas()
				if got := a.report(0, 1, 0, key); got != 99 {
					t.Fatalf("%s: alone: %d of 99", key, got)
				}
				if got := b.report(0, 1, 0, key); got != 1 {
					t.Errorf("%s: another one holds all: %d", key, got)
				}
				if got := a.report(5*time.Second, 0, 10, key); got < 85 || got > 95 { // 10 to 1
					t.Errorf("%s: less demand, yet: %d", key, got)
				}
				// 30 to 10: a part of what remains
				if got := b.report(5*time.Second, 1, 29, key); got < 5 || got > 12 {
					t.Errorf("%s: what the other one has left: %d", key, got)
				}
				if got := a.report(5*time.Second, 20, 0, key); got < 25 || got > 33 {
					t.Errorf("%s: 20 of 50 on 77: %d", key, got)
				}
				if got := b.report(5*time.Second, 0, 30, key); got < 40 || got > 50 {
					t.Errorf("%s: 30 of 50 on 77: %d", key, got)
				}
			}
			one.quotas().report(0, 500, 0, "debt")
			one.want("edge", refund(60, desc("debt", "v")), ok, 10) // of 150, whatever was reported
			if streams, buckets := one.stat("rls_rlqs_streams"), one.stat("rls_rlqs_buckets"); streams < 4 || buckets < 4 {
				t.Errorf("%v streams, %v buckets", streams, buckets)
			}
		})
	}
}

// TestRequestsThatAreTooLarge: both services refuse them with a sentence.
func TestRequestsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := serve(t, quotaRules, "REQUEST_MAX_BYTES=2048")
	long := strings.Repeat("x", 2100)
	if _, err := s.try(patience, "edge", desc("window", long)); grpcstatus.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "at most 2048 are allowed (REQUEST_MAX_BYTES)") {
		t.Error(err)
	}
	q := s.quotas()
	m := &quota.RateLimitQuotaUsageReports{Domain: "edge", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &quota.BucketId{Bucket: map[string]string{"window": long}}, TimeElapsed: &durationpb.Duration{}, NumRequestsAllowed: 1,
	}}}
	if err := q.Send(m); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Recv(); grpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "at most 2048 are allowed (REQUEST_MAX_BYTES)") {
		t.Error(err)
	}
}

// TestQuotasWithoutTheStore: with on_error: local a process goes on with its own part of the limit.
func TestQuotasWithoutTheStore(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	s := serve(t, "domain: edge\ndescriptors:\n  - {key: window, rate_limit: {unit: year, requests_per_unit: 100, on_error: local}}\n", redisAt(redis.Addr)...)
	stream := s.quotas()
	if got := stream.report(0, 1, 0, "window"); got != 99 {
		t.Errorf("alone: %d of 99", got)
	}
	redis.Stop()
	if got := stream.report(5*time.Second, 9, 0, "window"); got != 90 {
		t.Errorf("without the store: %d of 90", got)
	}
	if got := stream.report(5*time.Second, 20, 0, "window"); got != 70 {
		t.Errorf("without the store: %d of 70", got)
	}
}

// TestQuotasOfOneOfTwo: without the store a process has a half of the limit, in which each hit that
// its Envoys let pass is missing as a whole.
func TestQuotasOfOneOfTwo(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	s := serve(t, `domain: edge
descriptors:
  - {key: window, rate_limit: {unit: year, requests_per_unit: 101, on_error: local}}
  - {key: second, rate_limit: {unit: second, requests_per_unit: 50, on_error: local}}
`, append(redisAt(redis.Addr), "REPLICAS=2")...)
	window, second := s.quotas(), s.quotas()
	window.report(0, 1, 0, "window")
	if got := second.report(0, 1, 0, "second"); got != 50 {
		t.Errorf("alone: %d of 50 a second", got)
	}
	redis.Stop()
	for _, want := range []uint32{40, 30} { // of the half of 100
		if got := window.report(5*time.Second, 10, 0, "window"); got != want {
			t.Errorf("without the store: %d of %d", got, want)
		}
	}
	if got := second.report(5*time.Second, 10, 0, "second"); got != 25 {
		t.Errorf("without the store: %d of 25 a second", got)
	}
}

// TestManyQuotaStreams: a thousand streams at once, and one with 10,000 buckets, cost a bounded
// number of goroutines. The end of the process ends them without an error.
func TestManyQuotaStreams(t *testing.T) {
	t.Parallel()
	const streams, each, many = 1000, 10, 10_000
	s := serve(t, quotaRules, "DRAIN_PERIOD=0s")
	before := s.stat("go_goroutines")
	all := make([]*quotaStream, streams+1)
	var reports sync.WaitGroup
	for i := range all {
		if i%500 == 0 { // of one Envoy come some streams
			all[i] = s.quotas()
		} else {
			all[i] = all[i-1].another()
		}
		n := each
		if i == streams {
			n = many
		}
		reports.Go(func() { all[i].reportMany(n) })
	}
	reports.Wait()
	if t.Failed() {
		return
	}
	if n, m := s.stat("rls_rlqs_streams"), s.stat("rls_rlqs_buckets"); n != streams+1 || m != streams*each+many {
		t.Errorf("%v streams, %v buckets", n, m)
	}
	if n := s.stat("go_goroutines") - before; n > 3*streams {
		t.Errorf("%v goroutines more", n)
	}
	t.Logf("%v goroutines, %.0f MiB", s.stat("go_goroutines"), s.stat("process_resident_memory_bytes")/(1<<20))
	s.terminate()
	for _, stream := range all {
		for {
			_, err := stream.Recv()
			if err == nil { // an assignment is renewed
				continue
			}
			if err != io.EOF { //nolint:errorlint // gRPC returns it as it is
				t.Errorf("%v, want EOF", err)
			}
			break
		}
	}
	if code := s.exitCode(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// quotaFilter is Envoy's filter rate_limit_quota. All requests belong to the bucket {key: v}.
func quotaFilter(key string) string {
	const of = `"@type": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuota`
	return `{name: envoy.filters.http.rate_limit_quota, typed_config: {` + of + `FilterConfig, domain: edge,` +
		`rlqs_server: {envoy_grpc: {cluster_name: quotas}}, bucket_matchers: {on_no_match: {action: {name: rate_limit_quota, typed_config: {` + of +
		`BucketSettings, bucket_id_builder: {bucket_id_builder: {` + key + `: {string_value: v}}}, reporting_interval: 5s}}}}}}`
}

// TestQuotaFilter: a real Envoy enforces what it is assigned.
func TestQuotaFilter(t *testing.T) {
	t.Parallel()
	s := serve(t, quotaRules)
	f := startFront(t, map[string]*service{"quotas": s}, []frontListener{
		{Name: "window", Filters: []string{quotaFilter("window")}},
		{Name: "second", Filters: []string{quotaFilter("second")}},
	}, []frontRoute{{"/", "route: {cluster: upstream}"}})
	send := func(t *testing.T, listener string, n int) (passed int) {
		t.Helper()
		for range n {
			a, err := f.try(listener, "/")
			if err != nil {
				t.Fatal(err)
			}
			if a.code == http.StatusOK {
				passed++
			} else if a.code != http.StatusTooManyRequests {
				t.Fatal(a)
			}
		}
		return passed
	}
	// assigned waits until the service has assigned so many hits per second, and Envoy has logged
	// the texts and then given the assignment to its worker, which takes it before a later request.
	// Before the first assignment Envoy lets all pass.
	assigned := func(t *testing.T, rule, rate string, texts ...string) {
		t.Helper()
		testenv.Eventually(t, patience, func() bool {
			_, text := s.get("debug", "/stats")
			return strings.Contains(text, `rls_rlqs_assigned_hits_per_second{rule="edge.`+rule+`"} `+rate+"\n")
		}, "assigned hits per second: "+rate)
		testenv.Eventually(t, patience, func() bool {
			return f.envoy.Logged(append(texts, "RLQS buckets cache written to TLS")...)
		}, fmt.Sprintf("Envoy has the assignment %q", texts))
	}
	t.Run("a long window", func(t *testing.T) {
		t.Parallel()
		used := send(t, "window", 1)
		assigned(t, "window", "19.8", "max_tokens: 99\n")
		used += send(t, "window", 39)
		assigned(t, "window", "12", "max_tokens: 60\n")
		if used += send(t, "window", 30); used != 70 { // what remains has arrived
			t.Errorf("%d passed, want 70", used)
		}
		if used += send(t, "window", 50); used != 100 {
			t.Errorf("%d passed, want 100", used)
		}
		assigned(t, "window", "0", "num_requests_allowed: 60\n", "DENY_ALL")
		if passed := send(t, "window", 10); passed != 0 {
			t.Errorf("%d passed, and nothing remains", passed)
		}
	})
	t.Run("a second", func(t *testing.T) {
		t.Parallel()
		send(t, "second", 1)
		assigned(t, "second", "50", "max_tokens: 50\n")
		passed, start := 0, time.Now()
		pace := time.NewTicker(50 * time.Millisecond) // up to 200 a second
		defer pace.Stop()
		for time.Since(start) < 12*time.Second {
			passed += send(t, "second", 10)
			<-pace.C
		}
		if most := 50 * (time.Since(start).Seconds() + 1) * 1.05; float64(passed) > most || passed < 300 {
			t.Errorf("%d passed in 12 s, want up to %v", passed, most)
		}
		assigned(t, "second", "50", "max_tokens: 50\n")
	})
}
