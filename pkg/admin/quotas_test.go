package admin_test

import (
	"context"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/rlqs"
)

// An explanation tells the buckets of Envoys that enforce the limit themselves, if it is asked to.
func TestExplanationsTellBucketsOfEnvoys(t *testing.T) {
	var quotas *rlqs.Server
	r := start(t, listening{change: func(o *admin.Options) {
		store := newStore(t)
		limits := newLimits(t, store, rules)
		quotas = rlqs.New(rlqs.Options{Service: limits.Service, Now: store.Now, TTL: 15 * time.Second})
		o.Limits, o.Quotas = limits, quotas
	}})
	server := grpc.NewServer(grpc.ForceServerCodecV2(envoy.Codec()))
	quota.RegisterRateLimitQuotaServiceServer(server, quotas)
	listener := bufconn.Listen(1 << 20)
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:quotas", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := quota.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&quota.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{{
		BucketId: &quota.BucketId{Bucket: map[string]string{"user": "ann"}}, TimeElapsed: durationpb.New(0), NumRequestsAllowed: 5,
	}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	asked := r.ask("POST", "/v1/explain", annsRequest+`,"rlqs":true}`, bearer(readToken))
	if told := regexp.MustCompile(`"rlqs":\{"buckets":1,"assigned_hits_per_second":[0-9.]*[1-9]`); asked.code != 200 || !told.MatchString(asked.text) {
		t.Error(asked.text)
	}
	if got := r.ask("POST", "/v1/explain", annsRequest+"}", bearer(readToken)); got.code != 200 || strings.Contains(got.text, "rlqs") {
		t.Error(got.text)
	}
}
