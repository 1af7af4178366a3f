package integration

import (
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
)

// With GRPC_CHANNELZ the program tells how many calls it has got.
func TestChannelzCountsCalls(t *testing.T) {
	s := launch(t, "domain: d\n", "GRPC_CHANNELZ=true")
	for range 3 {
		_, _ = s.client.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{}) // an error is a call, too
	}
	reply, err := channelz.NewChannelzClient(dial(t, s.addrs["gRPC"], nil)).GetServers(t.Context(), &channelz.GetServersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if servers := reply.GetServer(); len(servers) != 1 || servers[0].GetData().GetCallsStarted() < 3 {
		t.Errorf("got %v, want one server with 3 calls or more", servers)
	}
}
