package integration

import (
	"context"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/credentials/insecure"
)

// With GRPC_CHANNELZ the program tells how many calls it has got.
func TestChannelzCountsCalls(t *testing.T) {
	s := launch(t, "domain: d\n", "GRPC_CHANNELZ=true")
	for range 3 {
		_, _ = s.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{}) // an error is a call, too
	}
	conn, err := grpc.NewClient("passthrough:///"+s.addrs["gRPC"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	reply, err := channelz.NewChannelzClient(conn).GetServers(context.Background(), &channelz.GetServersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if servers := reply.GetServer(); len(servers) != 1 || servers[0].GetData().GetCallsStarted() < 3 {
		t.Errorf("got %v, want one server with 3 calls or more", servers)
	}
}
