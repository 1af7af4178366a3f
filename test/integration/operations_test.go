package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
)

// deployment is a gateway's Deployment of envoyproxy/ratelimit: its command and its
// environment. Only ports, addresses and folders are those of this machine.
type deployment struct {
	env []string
	tls *testenv.TLS // with which gRPC is served; nil without
}

// roll starts the program as a Deployment does: under the name that it has in the
// image, and with no other variables than the deployment's.
func (d deployment) roll(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, root: t.TempDir(), ended: make(chan struct{}), addrs: map[string]string{}}
	name := filepath.Join(s.root, "ratelimit")
	if err := os.Symlink(program, name); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(s.logFile())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	s.cmd = exec.Command(name)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.Env = "/", log, log, d.env
	for listener, variable := range map[string]string{"HTTP": "PORT", "gRPC": "GRPC_PORT", "debug": "DEBUG_PORT"} {
		port := strconv.Itoa(testenv.FreePort(t))
		s.addrs[listener] = net.JoinHostPort("127.0.0.1", port)
		s.cmd.Env = append(s.cmd.Env, variable+"="+port)
	}
	if err := testenv.Start(s.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		if t.Failed() {
			t.Logf("log of the program:\n%s", s.log())
		}
	})
	creds := insecure.NewCredentials()
	if d.tls != nil {
		creds = credentials.NewTLS(d.tls.Client)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.addrs["gRPC"], grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.client = pb.NewRateLimitServiceClient(conn)
	testenv.Eventually(t, patience, func() bool {
		client := http.Client{Timeout: time.Second} // as the probes
		resp, err := client.Get("http://" + s.addrs["HTTP"] + "/healthcheck")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, "the Deployment becomes ready")
	return s
}

// configMap is a folder as Kubernetes mounts a ConfigMap with one file.
type configMap struct {
	t    *testing.T
	path string
	n    int
}

func mountConfigMap(t *testing.T, path, rules string) *configMap {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &configMap{t: t, path: path}
	m.update(rules)
	if err := os.Symlink(filepath.Join("..data", "config.yaml"), filepath.Join(path, "config.yaml")); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *configMap) update(rules string) {
	m.t.Helper()
	m.n++
	dir := fmt.Sprintf("..2026_11_21_%d", m.n)
	err := os.Mkdir(filepath.Join(m.path, dir), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.path, dir, "config.yaml"), []byte(rules), 0o600)
	}
	if err == nil {
		err = os.Symlink(dir, filepath.Join(m.path, "..data_tmp"))
	}
	if err == nil {
		err = os.Rename(filepath.Join(m.path, "..data_tmp"), filepath.Join(m.path, "..data"))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

const sampleRules = `
domain: ratelimit
descriptors: [{key: PATH, value: /productpage, rate_limit: {unit: year, requests_per_unit: 1}}]
`

// istio is the sample of Istio's documentation; contour the example of
// Contour's: the same but for the debug port and the addresses.
func istio(redis, data string) deployment {
	return deployment{env: []string{
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "USE_STATSD=false", "LOG_LEVEL=debug",
		"RUNTIME_ROOT=" + data, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
		"HOST=::", "GRPC_HOST=::",
	}}
}

func contour(redis, data string) deployment {
	return deployment{env: []string{
		"CONFIG_TYPE=FILE", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "USE_STATSD=false", "LOG_LEVEL=debug",
		"RUNTIME_ROOT=" + data, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
	}}
}

// envoyGateway is the Deployment that Envoy Gateway makes, with all that can
// be switched on there.
func envoyGateway(t *testing.T, redis *testenv.Server, certs *testenv.TLS) deployment {
	return deployment{tls: certs, env: []string{
		"RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false",
		// Nobody listens there.
		"CONFIG_TYPE=GRPC_XDS_SOTW", fmt.Sprintf("CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:%d", testenv.FreePort(t)), "CONFIG_GRPC_XDS_NODE_ID=envoy-gateway/eg",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + certs.ClientCertFile,
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + certs.ClientKeyFile, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + certs.CAFile,
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true",
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + certs.ServerCertFile, "GRPC_SERVER_TLS_KEY=" + certs.ServerKeyFile,
		"GRPC_SERVER_TLS_CA_CERT=" + certs.CAFile,
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis.Addr, "REDIS_TLS=true",
		"REDIS_TLS_CLIENT_CERT=" + certs.ClientCertFile, "REDIS_TLS_CLIENT_KEY=" + certs.ClientKeyFile, "REDIS_TLS_CACERT=" + certs.CAFile,
		"USE_PROMETHEUS=true", fmt.Sprintf("PROMETHEUS_ADDR=:%d", testenv.FreePort(t)),
		"PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		"TRACING_ENABLED=true", "TRACING_SERVICE_NAME=envoy-ratelimit", "TRACING_SERVICE_NAMESPACE=envoy-gateway-system",
		"TRACING_SERVICE_INSTANCE_ID=pod-0", "TRACING_SAMPLING_RATE=0.6", "TRACING_EXPORTER_PROTOCOL=grpc",
		fmt.Sprintf("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:%d", testenv.FreePort(t)),
	}}
}

// The service is ready without rules and without a mapping file, and clients need a
// certificate because of the variable that Envoy Gateway sets.
func TestEnvoyGatewaysDeployment(t *testing.T) {
	t.Parallel()
	certs := testenv.Certs(t)
	d := envoyGateway(t, testenv.Redis(t, certs.RedisArgs()...), certs)
	s := d.roll(t)
	if _, err := s.try(patience, "ratelimit", desc("PATH", "/")); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("without rules: %v", err)
	}
	if code, body := s.get("debug", "/rlconfig"); code != http.StatusOK || body != "" {
		t.Errorf("/rlconfig: %d %q", code, body)
	}
	anonymous := &tls.Config{RootCAs: certs.Client.RootCAs, MinVersion: tls.VersionTLS12}
	conn, err := grpc.NewClient("passthrough:///"+s.addrs["gRPC"], grpc.WithTransportCredentials(credentials.NewTLS(anonymous)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d"}); err == nil ||
		strings.Contains(err.Error(), "no rate limit configuration") {
		t.Errorf("a client without a certificate: %v", err)
	}
	s.terminate()
	if code := s.exitCode(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestFileBasedDeployments(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	for name, make := range map[string]func(redis, data string) deployment{"Istio": istio, "Contour": contour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			domain := strings.ToLower(name)
			rules := strings.Replace(sampleRules, "domain: ratelimit", "domain: "+domain, 1)
			folder := mountConfigMap(t, filepath.Join(data, "ratelimit", "config"), rules)
			s := make(redis.Addr, data).roll(t)
			testenv.Eventually(t, patience, func() bool {
				_, rules := s.get("debug", "/rlconfig")
				return strings.Contains(rules, domain+".PATH_/productpage: unit=YEAR requests_per_unit=1")
			}, "the rules are in force")
			s.want(domain, desc("PATH", "/productpage"), ok, 0)
			s.want(domain, desc("PATH", "/productpage"), over, 0)
			// The kubelet updates the ConfigMap.
			folder.update(strings.Replace(rules, "requests_per_unit: 1", "requests_per_unit: 5", 1))
			s.inForce("requests_per_unit=5")
		})
	}
}

func TestHealthcheckFollowsTheLifeCycle(t *testing.T) {
	t.Parallel()
	s := serve(t, plentyRules, "DRAIN_PERIOD=2s")
	s.within(time.Second, func() bool {
		code, body := s.get("HTTP", "/healthcheck")
		return code == http.StatusOK && body == "OK"
	}, "200 OK")
	s.terminate()
	s.within(time.Second, func() bool {
		code, _ := s.get("HTTP", "/healthcheck")
		return code == http.StatusInternalServerError
	}, "500 after SIGTERM")
	s.want("web", desc("plenty", "x"), ok, 3999999999)
}

func TestHealthOfEachName(t *testing.T) {
	t.Parallel()
	s := serve(t, plentyRules)
	conn, err := grpc.NewClient("passthrough:///"+s.addrs["gRPC"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for name, want := range map[string]codes.Code{"": codes.OK, "ratelimit": codes.OK, pb.RateLimitService_ServiceDesc.ServiceName: codes.OK, "other": codes.NotFound} {
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if grpcstatus.Code(err) != want || err == nil && resp.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v %v", name, resp, err)
		}
	}
}

// A connection that has reached its greatest age gets GOAWAY, and no call fails.
func TestMaxConnectionAgeDrains(t *testing.T) {
	t.Parallel()
	s := serve(t, plentyRules, "GRPC_MAX_CONNECTION_AGE=300ms", "GRPC_MAX_CONNECTION_AGE_GRACE=5s")
	conn, err := grpc.NewClient("passthrough:///"+s.addrs["gRPC"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.client = pb.NewRateLimitServiceClient(conn)
	stop := load(t, func() error {
		_, err := s.try(patience, "web", desc("plenty", "x"))
		return err
	})
	ctx := t.Context()
	for range 2 { // the connection ends twice
		for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
			conn.WaitForStateChange(ctx, state)
		}
		conn.WaitForStateChange(ctx, connectivity.Ready)
	}
	if stop() == 0 {
		t.Error("no calls")
	}
}

func TestRlconfigIsSorted(t *testing.T) {
	t.Parallel()
	s := serve(t, "domain: web\ndescriptors:\n"+
		"  - {key: b, rate_limit: {unit: minute, requests_per_unit: 2}}\n"+
		"  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n"+
		"  - {key: c, rate_limit: {unlimited: true}}\n")
	s.inForce("web.a")
	const want = "web.a: unit=HOUR requests_per_unit=1, shadow_mode: false, quota_mode: false\n" +
		"web.b: unit=MINUTE requests_per_unit=2, shadow_mode: false, quota_mode: false\n" +
		"web.c: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n"
	if _, got := s.get("debug", "/rlconfig"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestJSONAnswersWithStatusCodes(t *testing.T) {
	t.Parallel()
	s := serve(t, sampleRules)
	s.inForce("PATH")
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		const request = `{"domain":"ratelimit","descriptors":[{"entries":[{"key":"PATH","value":"/productpage"}]}]}`
		resp, err := http.Post("http://"+s.addrs["HTTP"]+"/json", "application/json", strings.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("request %d: %s", i, resp.Status)
		}
	}
}
