package xds_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"example.org/rls/internal/testenv"
	"example.org/rls/internal/testenv/controlplane"
	"example.org/rls/pkg/sources/xds"
)

// scripted is a management server that sends given responses, one after each
// request, and then waits or ends the stream.
type scripted struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	responses []*discovery.DiscoveryResponse
	deltas    []*discovery.DeltaDiscoveryResponse
	ends      bool // whether the server ends the stream without an error after the last response

	mu    sync.Mutex
	opens []time.Time
	asked []any
}

func (s *scripted) StreamAggregatedResources(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return play(s, stream, s.responses, (*discovery.DiscoveryResponse).GetTypeUrl)
}

func (s *scripted) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return play(s, stream, s.deltas, (*discovery.DeltaDiscoveryResponse).GetTypeUrl)
}

func play[Request, Response any](
	s *scripted, stream grpc.BidiStreamingServer[Request, Response], responses []*Response, kind func(*Response) string,
) error {
	s.mu.Lock()
	s.opens = append(s.opens, time.Now())
	s.mu.Unlock()
	for len(responses) > 0 || !s.ends {
		request, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.asked = append(s.asked, request)
		s.mu.Unlock()
		for answered := false; !answered && len(responses) > 0; responses = responses[1:] {
			if err := stream.Send(responses[0]); err != nil {
				return err
			}
			answered = kind(responses[0]) == url
		}
	}
	return nil
}

func (s *scripted) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens
}

func pack(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestUndecodableIsRefusedAndOtherTypesAreIgnored(t *testing.T) {
	at := controlplane.NewPort(t)
	s := &scripted{responses: []*discovery.DiscoveryResponse{
		{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", VersionInfo: "7", Nonce: "n0"},
		{TypeUrl: url, VersionInfo: "1", Nonce: "n1", Resources: []*anypb.Any{pack(t, rules("first", "a", 1))}},
		{TypeUrl: url, VersionInfo: "2", Nonce: "n2", Resources: []*anypb.Any{
			pack(t, rules("first", "b", 1)), pack(t, &core.Node{Id: "x"}), {TypeUrl: url, Value: []byte("\xff")}, nil,
		}},
		{TypeUrl: url, VersionInfo: "3", Nonce: "n3", Resources: []*anypb.Any{pack(t, rules("first", "c", 1))}},
	}}
	at.Serve(s)
	o := run(t, &xds.Source{Server: at.Addr})
	o.become("c")
	testenv.Eventually(t, soon, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.asked) == 4
	}, "the last acknowledgement")
	if n := o.loads(); n != 3 {
		t.Errorf("%d loads, want one for each response of the type", n)
	}
	nack := s.asked[2].(*discovery.DiscoveryRequest)
	message := nack.GetErrorDetail().GetMessage()
	if nack.GetVersionInfo() != "1" || nack.GetResponseNonce() != "n2" {
		t.Errorf("got %v", nack)
	}
	lines := strings.Split(message, "\n")
	if len(lines) != 3 {
		t.Fatalf("%d problems, want 3: %s", len(lines), message)
	}
	for i, want := range []string{`resources[1]: decode "type.googleapis.com/envoy.config.core.v3.Node"`, `resources[2]: decode "` + url, `resources[3]: decode ""`} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("got %s, want %s", lines[i], want)
		}
	}
}

// A detail above the server's maximum size would end each stream.
func TestDetailOfARefusalIsBounded(t *testing.T) {
	_, p, o := start(t, &xds.Source{})
	bad := many("many", "many", 1<<20)
	for _, d := range bad.Descriptors {
		d.RateLimit.Unit = 99
	}
	p.Set("2", bad)
	if problems := o.refused(1); problems < 1000 {
		t.Fatalf("only %d problems", problems)
	}
	message := p.Request(2).GetErrorDetail().GetMessage()
	if len(message) > 70<<10 || !strings.HasPrefix(message, "many: descriptors[0]: rate_limit.unit: ") || !strings.HasSuffix(message, "\n… and more, see the log") {
		t.Errorf("%d bytes: %.200s … %s", len(message), message, message[len(message)-100:])
	}
}

func TestServerThatEndsStreamsIsNotAskedInAHotLoop(t *testing.T) {
	slow := xds.Backoff{Unreachable: time.Millisecond, Ended: 100 * time.Millisecond, Max: time.Second, Jitter: true}
	answer := &discovery.DiscoveryResponse{TypeUrl: url, VersionInfo: "1", Nonce: "n1"}
	for _, tt := range []struct {
		name   string
		server *scripted
		delta  bool
		least  []time.Duration // between streams: half of each wait
	}{
		{"at once", &scripted{ends: true}, false, []time.Duration{50, 100, 200}},
		{"at once, delta", &scripted{ends: true}, true, []time.Duration{50, 100, 200}},
		{"after a response", &scripted{ends: true, responses: []*discovery.DiscoveryResponse{answer}}, false, []time.Duration{50, 50, 50}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at := controlplane.NewPort(t)
			at.Serve(tt.server)
			run(t, &xds.Source{Server: at.Addr, Delta: tt.delta, Backoff: slow})
			testenv.Eventually(t, soon, func() bool { return len(tt.server.times()) > len(tt.least) }, "streams")
			opens := tt.server.times()
			for i, least := range tt.least {
				if wait := opens[i+1].Sub(opens[i]); wait < least*time.Millisecond {
					t.Errorf("wait %d is %v, want at least %v", i, wait, least*time.Millisecond)
				}
			}
		})
	}
}

// TestServerThatComesLaterAndGoes: the wait for a server that cannot be reached is its own,
// and the log says whether rules are in force without the server.
func TestServerThatComesLaterAndGoes(t *testing.T) {
	var log testenv.Log
	at, p := controlplane.NewPort(t), controlplane.New(t, node)
	p.Set("1", rules("first", "a", 1))
	o := run(t, &xds.Source{
		Server: at.Addr, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Backoff: xds.Backoff{Unreachable: 20 * time.Millisecond, Ended: time.Hour, Max: time.Hour},
	})
	const without, with = "connection ended, no rules are in force", "connection ended, the last good rules stay in force"
	testenv.Eventually(t, soon, func() bool { return len(log.With(without)) > 0 }, without)
	if lines := log.With(with); len(lines) > 0 {
		t.Errorf("there are no rules yet, but the log has %q", lines)
	}
	at.Serve(p)
	o.become("a")
	at.Stop()
	testenv.Eventually(t, soon, func() bool { return len(log.With(with)) > 0 }, with)
}

func TestRulesOutliveTheServer(t *testing.T) {
	at, _, o := start(t, &xds.Source{})
	at.Stop()
	s := &scripted{ends: true}
	at.Serve(s)
	testenv.Eventually(t, soon, func() bool { return len(s.times()) > 3 }, "streams")
	if o.now() != "a" {
		t.Errorf("in force: %s", o.now())
	}
}

func TestCertificatesAreReadForEachConnection(t *testing.T) {
	mutual := func(c *testenv.TLS) grpc.ServerOption {
		config := c.Server.Clone()
		config.MinVersion, config.ClientAuth = tls.VersionTLS13, tls.RequireAndVerifyClientCert
		return grpc.Creds(credentials.NewTLS(config))
	}
	var reads atomic.Int64
	var installed atomic.Pointer[testenv.TLS]
	load := func() (*tls.Config, error) {
		reads.Add(1)
		if c := installed.Load(); c != nil {
			return c.ForClient(), nil
		}
		return nil, errors.New("no certificate yet")
	}

	// The source goes on when there is no certificate.
	at, p := controlplane.NewPort(t), controlplane.New(t, node)
	old := testenv.Certs(t)
	p.Set("1", rules("first", "a", 1))
	at.Serve(p, mutual(old))
	o := run(t, &xds.Source{Server: at.Addr, TLS: load})
	testenv.Eventually(t, soon, func() bool { return reads.Load() > 2 }, "tried again")
	installed.Store(old)
	o.become("a")

	// The server changes its authority, and refuses the old certificate.
	at.Stop()
	rotated := testenv.Certs(t)
	p = controlplane.New(t, node)
	p.Set("1", rules("first", "b", 1))
	at.Serve(p, mutual(rotated))
	before := reads.Load()
	testenv.Eventually(t, soon, func() bool { return reads.Load() > before+2 }, "tried again")
	if o.now() != "a" {
		t.Errorf("in force: %s", o.now())
	}
	installed.Store(rotated)
	o.become("b")
}
