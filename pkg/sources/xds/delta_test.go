package xds_test

import (
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"example.org/rls/internal/testenv/controlplane"
	"example.org/rls/pkg/sources/xds"
)

func TestDeltaFollowsChanges(t *testing.T) {
	_, p, o := start(t, &xds.Source{Delta: true})
	first := p.Delta(0)
	if first.GetTypeUrl() != url || first.GetNode().GetId() != node || len(first.GetInitialResourceVersions()) > 0 ||
		len(first.GetResourceNamesSubscribe()) > 0 || first.GetResponseNonce() != "" {
		t.Errorf("got %v", first)
	}
	if ack := p.Delta(1); ack.GetResponseNonce() == "" || ack.GetErrorDetail() != nil {
		t.Errorf("got %v", ack)
	}
	p.Set("2", rules("first", "a", 10), rules("second", "b", 5))
	o.become("a b")
	p.Set("3", rules("second", "b", 5))
	o.become("b")
	p.Set("4")
	o.become("")
}

func TestDeltaRefusalKeepsTheOldLimitsAndForgetsNothing(t *testing.T) {
	_, p, o := start(t, &xds.Source{Delta: true})
	p.Delta(1)
	// Two resources change together, one of them wrong; then the server corrects
	// that one alone.
	p.Set("2", wrong("first", "a"), rules("second", "b", 5))
	o.refused(1)
	nack := p.Delta(2)
	if nack.GetResponseNonce() == "" || !strings.HasPrefix(nack.GetErrorDetail().GetMessage(), "first: descriptors[0]: rate_limit.unit: unknown unit") {
		t.Errorf("got %v", nack)
	}
	if o.now() != "a" {
		t.Errorf("in force: %s", o.now())
	}
	p.Set("3", rules("first", "c", 20), rules("second", "b", 5))
	o.become("b c")
}

func TestDeltaGoesOnWhereItWas(t *testing.T) {
	at, p, o := start(t, &xds.Source{Delta: true})
	p.Set("2", rules("first", "a", 10), rules("second", "b", 5))
	o.become("a b")
	// A new stream does not name the versions of refused resources.
	p.Set("3", rules("first", "a", 10), wrong("second", "b"), rules("third", "c", 1))
	o.refused(2)
	at.Stop()

	next := controlplane.New(t, node)
	next.Set("1", rules("first", "a", 10), rules("third", "d", 1))
	at.Serve(next)
	o.become("a d")
	versions := next.Delta(0).GetInitialResourceVersions()
	if len(versions) != 2 || versions["first"] == "" || versions["second"] == "" {
		t.Errorf("asked with the versions %q", versions)
	}
	at.Stop()

	empty := controlplane.New(t, node)
	empty.Set("1")
	at.Serve(empty)
	o.become("")
}

// A resource without a body is a heartbeat and changes nothing.
func TestDeltaHeartbeatChangesNothing(t *testing.T) {
	config := pack(t, rules("first", "a", 1))
	at := controlplane.NewPort(t)
	at.Serve(&scripted{
		deltas: []*discovery.DeltaDiscoveryResponse{
			{TypeUrl: url, Nonce: "1", Resources: []*discovery.Resource{{Name: "first", Version: "1", Resource: config}}},
			{TypeUrl: url, Nonce: "2", Resources: []*discovery.Resource{{Name: "first", Version: "1"}}},
			{TypeUrl: url, Nonce: "3", Resources: []*discovery.Resource{{Name: "second", Version: "1", Resource: pack(t, rules("second", "b", 1))}}},
		},
	})
	run(t, &xds.Source{Server: at.Addr, Delta: true}).become("a b")
}
