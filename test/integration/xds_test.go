package integration

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"example.org/rls/internal/testenv"
	"example.org/rls/internal/testenv/controlplane"
)

const xdsNode = "default/eg"

// xdsAt are the settings for rules from a management server.
func xdsAt(at *controlplane.Port, kind string, more ...string) []string {
	return append([]string{
		"CONFIG_TYPE=GRPC_XDS_" + kind, "CONFIG_GRPC_XDS_SERVER_URL=" + at.Addr, "CONFIG_GRPC_XDS_NODE_ID=" + xdsNode,
		"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL=50ms", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=50ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=500ms",
	}, more...)
}

// perHour is a resource with one limit for each user.
func perHour(domain string, requests uint32) *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: "default/" + domain, Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{
		Key:       "user",
		RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_HOUR, RequestsPerUnit: requests},
	}}}
}

// startPlane starts a management server with these resources.
func startPlane(t testing.TB, configs ...*ratelimit.RateLimitConfig) (*controlplane.Port, *controlplane.Plane) {
	at, plane := controlplane.NewPort(t), controlplane.New(t, xdsNode)
	plane.Set("1", configs...)
	at.Serve(plane)
	return at, plane
}

// isConnected checks the metrics of a program that is connected to its management
// server, and has refused so many resources.
func (s *service) isConnected(refused float64) {
	s.t.Helper()
	if got, connected := s.stat("rls_config_refused"), s.stat("rls_xds_connected"); got != refused || connected != 1 {
		s.t.Errorf("refused %v, connected %v; want %v and 1", got, connected, refused)
	}
}

// gone is whether the domain has no limits.
func (s *service) gone(domain string) bool {
	return s.hit(domain, desc("user", "x")).CurrentLimit == nil
}

// TestRulesFromAManagementServer is a gateway's life: the service is there
// before its control plane, which then sets, changes, spoils and removes rules
// and is itself replaced.
func TestRulesFromAManagementServer(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"SOTW", "DELTA"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at, plane := controlplane.NewPort(t), controlplane.New(t, xdsNode)
			s := serve(t, "domain: unused", xdsAt(at, kind, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")...)
			s.undecided("a", desc("user", "1"), "")
			if s.stat("rls_xds_connected") != 0 {
				t.Error("connected to nobody")
			}
			plane.Set("1", perHour("a", 2))
			at.Serve(plane)
			s.inForce("a.user: unit=HOUR requests_per_unit=2,")
			s.want("a", desc("user", "1"), ok, 1)
			s.want("a", desc("user", "1"), ok, 0)
			s.want("a", desc("user", "1"), over, 0)

			// When the limit changes its counter goes on.
			plane.Set("2", perHour("a", 5), perHour("b", 1))
			s.inForce("b.user:")
			s.want("a", desc("user", "1"), ok, 1)

			plane.Set("3", perHour("a", 9), &ratelimit.RateLimitConfig{Name: "default/c"})
			s.logs("default/c: domain: must not be empty")
			s.isConnected(1)
			s.want("a", desc("user", "1"), ok, 0)

			// A new server, which counts its versions from the beginning.
			at.Stop()
			testenv.Eventually(t, patience, func() bool { return s.stat("rls_xds_connected") == 0 }, "not connected")
			s.want("a", desc("user", "1"), over, 0)
			plane = controlplane.New(t, xdsNode)
			plane.Set("2", perHour("a", 10))
			at.Serve(plane)
			s.inForce("requests_per_unit=10,")
			s.isConnected(0)
			if !s.gone("b") {
				t.Error("b is still limited")
			}
			plane.Set("3")
			testenv.Eventually(t, patience, func() bool { return s.gone("a") }, "no limits")
			if !s.healthy() {
				t.Error("unhealthy")
			}
		})
	}
}

// An overlay adds what the messages cannot say: the program has its strategy and burst, also for
// rules that come later, and goes on with the last good overlay.
func TestOverlayOverRulesFromAManagementServer(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "overlay.yaml")
	write := func(content string) {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("overlays: [{domain: a, set: {strategy: token_bucket, burst: 3}}]")
	at, plane := startPlane(t, perHour("a", 1))
	s := serve(t, "domain: unused", xdsAt(at, "SOTW", "OVERLAY_FILE="+file)...)
	s.inForce("a.user: unit=HOUR requests_per_unit=1, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 3, overlay: burst, strategy from " + file + ":1")
	for remaining := range 3 {
		s.want("a", desc("user", "1"), ok, uint32(2-remaining))
	}
	s.want("a", desc("user", "1"), over, 0)
	write("overlays: [{domain: a, set: {strategy: token_bucket, burst: 0}}]")
	s.logs("overlays[0].set.burst: must be at least 1")
	plane.Set("2", perHour("a", 2))
	s.inForce("a.user: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false, strategy: token_bucket, burst: 3,")
	s.isConnected(1)
	write("overlays: [{domain: '*', set: {strategy: gcra, burst: 4}}]")
	s.inForce("a.user: unit=HOUR requests_per_unit=2, shadow_mode: false, quota_mode: false, strategy: gcra, burst: 4,")
	s.isConnected(0)
}

func TestNothingListensBeforeTheFirstSnapshot(t *testing.T) {
	t.Parallel()
	at, plane := controlplane.NewPort(t), controlplane.New(t, xdsNode)
	at.Serve(plane)
	var ports []string
	settings := xdsAt(at, "SOTW")
	for _, name := range []string{"PORT", "GRPC_PORT", "DEBUG_PORT"} {
		port := strconv.Itoa(testenv.FreePort(t))
		ports = append(ports, port)
		settings = append(settings, name+"="+port)
	}
	s, ended := begin(t, "", settings...), begin(t, "", xdsAt(at, "SOTW")...)
	plane.Request(1) // both wait
	for _, port := range ports {
		if conn, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			_ = conn.Close()
			t.Errorf("port %s is open", port)
		}
	}
	ended.ends()
	plane.Set("1", perHour("a", 1))
	s.connect()
	testenv.Eventually(t, patience, s.healthy, "healthy")
	s.want("a", desc("user", "1"), ok, 0)
}

// The program listens with refused rules, and is healthy only when the settings
// say that it may start without rules.
func TestHealthWithRefusedRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		settings []string
		healthy  bool
	}{
		{"by default", nil, false},
		{"forced", []string{"FORCE_START_WITHOUT_INITIAL_CONFIG=true"}, true},
		{"a domain needed", []string{"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true"}, false},
		{"forced, a domain needed", []string{"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at, plane := startPlane(t, perHour("", 1))
			s := launch(t, "", xdsAt(at, "SOTW", tt.settings...)...)
			if plane.Request(1).GetErrorDetail() == nil {
				t.Fatal("not refused")
			}
			if tt.healthy {
				testenv.Eventually(t, patience, s.healthy, "healthy")
			} else {
				s.unhealthyByAllNames()
			}
			s.undecided("a", desc("user", "1"), "")
			plane.Set("2", perHour("a", 1))
			s.inForce("a.user")
			testenv.Eventually(t, patience, s.healthy, "healthy")
		})
	}
}

// unhealthyByAllNames checks /healthcheck and every name of the health service, once
// the store answers.
func (s *service) unhealthyByAllNames() {
	s.t.Helper()
	testenv.Eventually(s.t, patience, func() bool { return s.stat(`rls_store_up{backend="memory"}`) == 1 }, "the store answers")
	if code, _ := s.get("HTTP", "/healthcheck"); code != http.StatusInternalServerError {
		s.t.Errorf("/healthcheck: %d", code)
	}
	client := healthpb.NewHealthClient(dial(s.t, s.addrs["gRPC"], nil))
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		resp, err := client.Check(s.t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || resp.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			s.t.Errorf("health of %q: %v, %v", name, resp.GetStatus(), err)
		}
	}
}

// Where a domain is needed, a snapshot without one makes the program unhealthy,
// whether it is the first one or comes later.
func TestHealthWithoutADomain(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"SOTW", "DELTA"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			at, plane := startPlane(t)
			s := begin(t, "", xdsAt(at, protocol, "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")...)
			if protocol == "SOTW" { // the delta protocol has no empty first answer
				s.connect()
				s.unhealthyByAllNames()
			}
			plane.Set("2", perHour("a", 1))
			s.connect()
			s.inForce("a.user")
			testenv.Eventually(t, patience, s.healthy, "healthy with a domain")
			plane.Set("3")
			testenv.Eventually(t, patience, func() bool { return !s.healthy() }, "unhealthy without a domain")
			s.unhealthyByAllNames()
			plane.Set("4", perHour("b", 1))
			testenv.Eventually(t, patience, s.healthy, "healthy with a domain again")
		})
	}
}

// TestRotatedCertificates runs the program as Envoy Gateway does: with mutual
// TLS 1.3, and with certificates that are renewed meanwhile.
func TestRotatedCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	install := func(c *testenv.TLS) {
		t.Helper()
		for from, to := range map[string]string{c.CAFile: "ca.crt", c.ClientCertFile: "tls.crt", c.ClientKeyFile: "tls.key"} {
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, to), content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	mutual := func(c *testenv.TLS) grpc.ServerOption {
		config := c.Server.Clone()
		config.MinVersion, config.ClientAuth = tls.VersionTLS13, tls.RequireAndVerifyClientCert
		return grpc.Creds(credentials.NewTLS(config))
	}
	old, renewed := testenv.Certs(t), testenv.Certs(t)
	install(old)
	at, plane := controlplane.NewPort(t), controlplane.New(t, xdsNode)
	plane.Set("1", perHour("a", 1))
	at.Serve(plane, mutual(old))
	settings := xdsAt(at, "SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT="+dir+"/ca.crt",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+dir+"/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+dir+"/tls.key")
	stranger := begin(t, "", append(settings, "CONFIG_GRPC_XDS_SERVER_TLS_SAN=control-plane.example.org")...)
	s := serve(t, "", append(settings, "CONFIG_GRPC_XDS_SERVER_TLS_SAN=localhost")...)
	s.inForce("a.user")
	stranger.logs("not control-plane.example.org")

	at.Stop()
	plane = controlplane.New(t, xdsNode)
	plane.Set("1", perHour("b", 1))
	at.Serve(plane, mutual(renewed))
	s.logs("certificate signed by unknown authority")
	s.want("a", desc("user", "1"), ok, 0)
	install(renewed)
	s.inForce("b.user")
}
