package integration

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/service/kuadrant/kuadrantpb"
)

const kuadrantRules = `
domain: llm
descriptors:
  - {key: window, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: sliding, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_window}}
  - {key: bucket, rate_limit: {unit: year, requests_per_unit: 100, strategy: token_bucket}}
  - {key: log, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_log}}
  - {key: parts, rate_limit: {unit: year, requests_per_unit: 100, strategy: sliding_window, precision: 10}}
  - {key: slots, rate_limit: {unit: year, requests_per_unit: 100, strategy: concurrency}}
  - {key: debt, rate_limit: {unit: year, requests_per_unit: 100, overdraft: true}}
  - key: several
    rate_limits:
      - {unit: year, requests_per_unit: 100}
      - {unit: day, requests_per_unit: 1000, strategy: token_bucket}
  - key: watched
    rate_limits:
      - {unit: year, requests_per_unit: 100}
      - {unit: year, requests_per_unit: 200, shadow_mode: true}
`

// kuadrant is the client of Kuadrant's service and the store it counts in.
type kuadrant struct {
	*service
	kuadrantpb.RateLimitServiceClient
}

// reserve returns the id of a Reserve, "" for one that is over the limit.
func (k *kuadrant) reserve(amount uint64, ttl time.Duration, descs ...*descriptor) string {
	k.t.Helper()
	reply, err := k.Reserve(k.t.Context(), &kuadrantpb.ReserveRequest{Domain: "llm", Descriptors: descs, Amount: amount, Ttl: durationpb.New(ttl)})
	if err != nil {
		k.t.Fatal(err)
	}
	return reply.ReservationId
}

func (k *kuadrant) commit(id string, amount uint64, descs ...*descriptor) {
	k.t.Helper()
	reply, err := k.Commit(k.t.Context(), &kuadrantpb.CommitRequest{Domain: "llm", Descriptors: descs, ReservationId: id, ActualAmount: amount})
	if err != nil || reply.Code != ok {
		k.t.Fatal(reply, err)
	}
}

func (k *kuadrant) left(want uint32, d *descriptor) {
	k.t.Helper()
	resp := k.call("llm", costing(0, desc(d.Entries[0].Key, d.Entries[0].Value)))
	if s := resp.Statuses[0]; s.LimitRemaining != want {
		k.t.Fatalf("%s: %d remain, want %d", d.Entries[0].Key, s.LimitRemaining, want)
	}
	if d.Entries[0].Key == "watched" {
		watched := resp.DynamicMetadata.GetFields()["shadow"].GetListValue().GetValues()
		if len(watched) != 1 || watched[0].GetStructValue().GetFields()["remaining"].GetNumberValue() < float64(want) {
			k.t.Fatalf("the limit in shadow mode: %v", watched)
		}
	}
}

// TestKuadrantsClientOnEveryStore: holds, commits and reports are the same wherever they count.
func TestKuadrantsClientOnEveryStore(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		if !slices.Contains([]string{"memory", "Redis", "Redis cluster", "two memcacheds"}, store.name) {
			continue
		}
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			settings, _ := store.start(t)
			s := serve(t, kuadrantRules, append(settings, "KUADRANT_RLS_ENABLED=true", "DECISION_TIMEOUT=10s", "RESPONSE_DYNAMIC_METADATA=true")...)
			client := kuadrantpb.NewRateLimitServiceClient(dial(t, s.addrs["gRPC"], nil))
			for _, key := range []string{"window", "sliding", "bucket", "log", "parts", "slots", "debt", "several", "watched"} {
				t.Run(key, func(t *testing.T) {
					k := &kuadrant{s.in(t), client}
					k.holds(desc(key, "ann"))
					k.lapses(desc(key, "bob"))
					k.races(desc(key, "eve"))
				})
			}
		})
	}
}

func (k *kuadrant) holds(d *descriptor) {
	k.t.Helper()
	id := k.reserve(60, time.Minute, d)
	k.left(40, d)
	if k.reserve(41, time.Minute, d) != "" {
		k.t.Fatal("41 hits are held where 40 remain")
	}
	k.commit(id, 25, d)
	k.commit(id, 25, d)
	k.left(75, d)
	k.commit(k.reserve(5, time.Minute, d), 0, d)
	k.left(75, d)
	k.commit(k.reserve(5, time.Minute, d), 10, d)
	k.commit("", 5, d)
	k.commit(strings.Repeat("ab", 16), 5, d)
	k.left(55, d)
	k.commit(k.reserve(5, time.Minute, d), 100, d)
	k.left(0, d)
	if k.reserve(1, time.Minute, d) != "" {
		k.t.Fatal("a hold where more is used than the limit")
	}
}

func (k *kuadrant) lapses(d *descriptor) {
	k.t.Helper()
	id, nothing := k.reserve(50, time.Second, d), k.reserve(0, time.Second, d)
	testenv.Eventually(k.t, patience, func() bool {
		return k.hit("llm", costing(0, desc(d.Entries[0].Key, d.Entries[0].Value))).LimitRemaining == 100
	}, "a hold of a second comes back")
	if k.reserve(60, time.Minute, d) == "" {
		k.t.Fatal("no hold where another one has lapsed")
	}
	for range 2 {
		k.commit(id, 10, d)
		k.commit(nothing, 10, d)
		k.left(20, d)
	}
}

// races has one id committed by several callers at once.
func (k *kuadrant) races(d *descriptor) {
	k.t.Helper()
	id := k.reserve(50, time.Minute, d)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			_, err := k.Commit(k.t.Context(), &kuadrantpb.CommitRequest{Domain: "llm", Descriptors: []*descriptor{d}, ReservationId: id, ActualAmount: 20})
			if err != nil {
				k.t.Error(err)
			}
		})
	}
	calls.Wait()
	k.left(80, d)
}

func TestKuadrantsServiceIsSeenAsTheOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, kuadrantRules, "KUADRANT_RLS_ENABLED=true", "GRPC_REFLECTION=true")
	conn := dial(t, s.addrs["gRPC"], nil)
	k, d := &kuadrant{s, kuadrantpb.NewRateLimitServiceClient(conn)}, desc("window", "ann")
	name := kuadrantpb.RateLimitService_ServiceDesc.ServiceName
	if h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatal(h, err)
	}
	k.commit(k.reserve(10, time.Minute, d), 4, d)
	k.commit(k.reserve(10, time.Minute, d), 13, d)
	for metric, want := range map[string]float64{
		`rls_reserved_hits_total{domain="llm",rule="llm.window"}`:                       20,
		`rls_settled_hits_total{direction="given_back",domain="llm",rule="llm.window"}`: 6,
		`rls_settled_hits_total{direction="charged",domain="llm",rule="llm.window"}`:    3,
		`ratelimit_service_total_requests{grpc_method="Reserve"}`:                       2,
		`ratelimit_service_total_requests{grpc_method="Commit"}`:                        2,
	} {
		if got := s.stat(metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	stream, err := reflection.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}}
	if err := stream.Send(ask); err != nil {
		t.Fatal(err)
	}
	if files, err := stream.Recv(); err != nil || len(files.GetFileDescriptorResponse().GetFileDescriptorProto()) < 2 {
		t.Fatal("reflection does not know the service and Envoy's messages:", files, err)
	}
}

func TestKuadrantsServiceIsOffByDefault(t *testing.T) {
	t.Parallel()
	s := launch(t, kuadrantRules)
	_, err := kuadrantpb.NewRateLimitServiceClient(dial(t, s.addrs["gRPC"], nil)).Reserve(t.Context(), &kuadrantpb.ReserveRequest{}, grpc.WaitForReady(false))
	if grpcstatus.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
}
