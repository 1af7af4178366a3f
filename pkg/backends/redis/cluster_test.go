package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
)

// TestCallToAForgottenNode: a call may learn of a node just before go-redis closes
// the node's client, and forget drops it. The call fails; the process goes on.
func TestCallToAForgottenNode(t *testing.T) {
	c := testenv.RedisCluster(t, 2, 0)
	s, err := Open(Options{Type: "cluster", URL: strings.Join(c.Addrs(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	apply := func() error {
		now := time.Now().UnixMicro()
		return s.Apply(context.Background(), &backends.Batch{
			Ops: []backends.Op{{
				Limit: &backends.Limit{Den: 1}, Key: "k", Now: now, Until: now + time.Hour.Microseconds(), Times: 1, By: backends.Amount{Whole: 1}, Max: backends.NoMax,
			}},
			Replies: make([]backends.Reply, 1),
		})
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	nodes := s.servers.(*cluster)
	node, err := nodes.client.MasterForKey(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	nodes.forget(nil)
	if err := apply(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a call to a node that is forgotten: got %v, want an error that says that the client is closed", err)
	}
}

// TestAddressesOfNodes: in each form that MOVED and ASK have.
func TestAddressesOfNodes(t *testing.T) {
	for told, want := range map[string]string{
		"10.0.0.1:1": "10.0.0.1:1", "node.example:1": "node.example:1", "::1:6380": "[::1]:6380", "[::1]:6380": "[::1]:6380",
		":6380": "asked.example:6380", "?:6380": "asked.example:6380",
	} {
		if got := onHost(told, "asked.example:6379"); got != want {
			t.Errorf("%s: got %s, want %s", told, got, want)
		}
	}
	if got := onHost(":6380", "[fe80::1]:6379"); got != "[fe80::1]:6380" {
		t.Errorf("on an IPv6 address: got %s", got)
	}
}
