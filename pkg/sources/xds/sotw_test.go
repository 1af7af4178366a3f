package xds_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/internal/testenv"
	"example.org/rls/internal/testenv/controlplane"
	"example.org/rls/pkg/sources/xds"
)

const url = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// start runs a source and a server with a first snapshot.
func start(t *testing.T, s *xds.Source) (*controlplane.Port, *controlplane.Plane, *observed) {
	t.Helper()
	at, p := controlplane.NewPort(t), controlplane.New(t, node)
	p.Set("1", rules("first", "a", 10))
	at.Serve(p)
	s.Server = at.Addr
	o := run(t, s)
	o.become("a")
	return at, p, o
}

func TestFirstRequestHasTypeAndNodeOnly(t *testing.T) {
	_, p, _ := start(t, &xds.Source{
		NodeMetadata: map[string]string{"zone": "a"},
		Headers:      func() map[string]string { return map[string]string{"Authorization": "Bearer x"} },
	})
	want := &discovery.DiscoveryRequest{TypeUrl: url, Node: &core.Node{
		Id:       node,
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"zone": structpb.NewStringValue("a")}},
	}}
	if diff := cmp.Diff(want, p.Request(0), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if got := p.Header(0, "authorization"); len(got) != 1 || got[0] != "Bearer x" {
		t.Errorf("authorization: %q", got)
	}
}

func TestAcceptedIsAcknowledged(t *testing.T) {
	_, p, o := start(t, &xds.Source{})
	first := p.Request(1)
	if first.GetVersionInfo() != "1" || first.GetResponseNonce() == "" || first.GetErrorDetail() != nil || len(first.GetResourceNames()) > 0 {
		t.Errorf("got %v", first)
	}
	p.Set("2", rules("first", "a", 20), rules("second", "b", 5))
	o.become("a b")
	second := p.Request(2)
	if second.GetVersionInfo() != "2" || second.GetResponseNonce() == first.GetResponseNonce() || second.GetErrorDetail() != nil {
		t.Errorf("got %v", second)
	}
	want := "a.user: unit=MINUTE requests_per_unit=20, shadow_mode: false, quota_mode: false\n" +
		"b.user: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false\n"
	if diff := cmp.Diff(want, o.dump()); diff != "" {
		t.Error(diff)
	}
	p.Set("3") // an empty list removes all limits
	o.become("")
	if ack := p.Request(3); ack.GetVersionInfo() != "3" || ack.GetErrorDetail() != nil {
		t.Errorf("got %v", ack)
	}
}

func TestRefusedKeepsTheOldLimits(t *testing.T) {
	_, p, o := start(t, &xds.Source{})
	accepted := p.Request(1)
	p.Set("2", rules("first", "a", 20), wrong("second", "b"), wrong("third", "c"))
	o.refused(1)
	nack := p.Request(2)
	if nack.GetVersionInfo() != "1" || nack.GetResponseNonce() == accepted.GetResponseNonce() || nack.GetResponseNonce() == "" {
		t.Errorf("got version %q, nonce %q after %q", nack.GetVersionInfo(), nack.GetResponseNonce(), accepted.GetResponseNonce())
	}
	const problem = `: descriptors[0]: rate_limit.unit: unknown unit "UNKNOWN"; one of second, minute, hour, day, week, month, year`
	want := "second" + problem + "\nthird" + problem
	if detail := nack.GetErrorDetail(); detail.GetMessage() != want || detail.GetCode() != int32(codes.InvalidArgument) {
		t.Errorf("got %v, want %s", detail, want)
	}
	if o.now() != "a" || !strings.Contains(o.dump(), "requests_per_unit=10,") {
		t.Errorf("in force: %s", o.dump())
	}
	p.Set("3", rules("first", "a", 20), rules("second", "b", 5))
	o.become("a b")
}

// go-control-plane's server answers a refusal with the refused rules, and sends nothing
// until it has the refusal. So the wait before a refusal must stay short, or corrected
// rules come late.
func TestRefusalsAreSlowAndCorrectedRulesComeSoon(t *testing.T) {
	_, p, o := start(t, &xds.Source{})
	p.Set("2", wrong("first", "a"))
	testenv.Within(t, 9*time.Second, func() bool {
		p.Request(4) // the third refusal
		if n := o.loads(); n > 6 {
			t.Errorf("%d loads by the third refusal", n)
		}
		p.Request(8)
		return true
	}, "the seventh refusal comes")
	p.Set("3", rules("first", "b", 10))
	o.become("b")
}

func TestRestartedServerThatReusesAVersionIsHeard(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(*controlplane.Plane)
		want string
	}{
		{"other rules", func(p *controlplane.Plane) { p.Set("1", rules("first", "b", 10)) }, "b"},
		{"no rules", func(p *controlplane.Plane) { p.Set("1") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, _, o := start(t, &xds.Source{})
			at.Stop()
			next := controlplane.New(t, node)
			tt.then(next)
			at.Serve(next)
			o.become(tt.want)
			if first := next.Request(0); first.GetVersionInfo() != "" || first.GetResponseNonce() != "" || first.GetNode().GetId() != node {
				t.Errorf("got %v", first)
			}
		})
	}
}

// many is a resource of about the given number of bytes.
func many(name, domain string, size int) (c *ratelimit.RateLimitConfig) {
	c = rules(name, domain, 1)
	each := 0
	for total := 0; total < size; total += each {
		d := rules("", "", 7).Descriptors[0]
		d.Value = fmt.Sprintf("%0500d", len(c.Descriptors)) // few and long: they load soon also on a busy machine
		each = len(d.Value) + 20
		c.Descriptors = append(c.Descriptors, d)
	}
	return c
}

func TestLargeMessages(t *testing.T) {
	at, p := controlplane.NewPort(t), controlplane.New(t, node)
	p.Set("1", many("large", "large", 5<<20))
	at.Serve(p)
	small := run(t, &xds.Source{Server: at.Addr})
	run(t, &xds.Source{Server: at.Addr, MaxMessageBytes: 16 << 20}).become("large")
	// Without the setting the message is refused, and asked for again.
	testenv.Eventually(t, soon, func() bool { return p.Streams() >= 4 }, "asked again")
	if small.loads() > 0 {
		t.Error("a message of 5 MiB was taken")
	}
	p.Set("2", rules("small", "small", 1))
	small.become("small")
}
