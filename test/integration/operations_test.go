package integration

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

// deployment is a gateway's Deployment of envoyproxy/ratelimit: its command and its
// environment. Only ports, addresses and folders are those of this machine.
type deployment struct {
	env []string
	tls *tls.Config // of clients; nil if gRPC is served without
}

// roll starts the program as a Deployment does: under the name that it has in the
// image, and with no other variables than the deployment's.
func (d deployment) roll(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, root: t.TempDir(), addrs: map[string]string{}}
	name := filepath.Join(s.root, "ratelimit")
	if err := os.Symlink(program, name); err != nil {
		t.Fatal(err)
	}
	env := d.env
	for listener, variable := range map[string]string{"HTTP": "PORT", "gRPC": "GRPC_PORT", "debug": "DEBUG_PORT"} {
		port := strconv.Itoa(testenv.FreePort(t))
		s.addrs[listener] = net.JoinHostPort("127.0.0.1", port)
		env = append(env, variable+"="+port)
	}
	s.run([]string{name}, env)
	s.client = pb.NewRateLimitServiceClient(dial(t, s.addrs["gRPC"], d.tls))
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
	if err := errors.Join(
		os.Mkdir(filepath.Join(m.path, dir), 0o755),
		os.WriteFile(filepath.Join(m.path, dir, "config.yaml"), []byte(rules), 0o600),
		os.Symlink(dir, filepath.Join(m.path, "..data_tmp")),
		os.Rename(filepath.Join(m.path, "..data_tmp"), filepath.Join(m.path, "..data")),
	); err != nil {
		m.t.Fatal(err)
	}
}

const sampleRules = `
domain: ratelimit
descriptors: [{key: PATH, value: /productpage, rate_limit: {unit: year, requests_per_unit: 1}}]
`

// contour is the example of Contour's documentation; istio the sample of Istio's: the
// same but for the debug port and the addresses.
func contour(redis, data string) deployment {
	return deployment{env: []string{
		"CONFIG_TYPE=FILE", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "USE_STATSD=false", "LOG_LEVEL=debug",
		"RUNTIME_ROOT=" + data, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
	}}
}

func istio(redis, data string) deployment {
	return deployment{env: append(contour(redis, data).env[1:], "HOST=::", "GRPC_HOST=::")}
}

// envoyGateway is the Deployment that Envoy Gateway makes, with all that can
// be switched on there.
func envoyGateway(t *testing.T, redis *testenv.Server, certs *testenv.TLS) deployment {
	return deployment{tls: certs.Client, env: []string{
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
	s.undecided("ratelimit", desc("PATH", "/"), "")
	if code, body := s.get("debug", "/rlconfig"); code != http.StatusOK || body != "" {
		t.Errorf("/rlconfig: %d %q", code, body)
	}
	s.client = pb.NewRateLimitServiceClient(dial(t, s.addrs["gRPC"], &tls.Config{RootCAs: certs.Client.RootCAs, MinVersion: tls.VersionTLS12}))
	if _, err := s.try(patience, "d"); err == nil || strings.Contains(err.Error(), "no rate limit configuration") {
		t.Errorf("a client without a certificate: %v", err)
	}
	s.ends()
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
			s.inForce(domain + ".PATH_/productpage: unit=YEAR requests_per_unit=1")
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
