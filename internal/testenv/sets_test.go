package testenv_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

// redisCLI returns what redis-cli prints; asked of a node of a cluster it
// follows redirections.
func redisCLI(t *testing.T, addr string, args ...string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	args = append([]string{"-c", "-h", host, "-p", port}, args...)
	out, _ := exec.Command(testenv.Binary(t, "redis-cli"), args...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

func TestRedisClusterFailsOver(t *testing.T) {
	c := testenv.RedisCluster(t, 3, 1)
	if len(c.Masters) != 3 || len(c.Replicas) != 3 || len(c.Addrs()) != 6 {
		t.Fatalf("%d masters, %d replicas, addresses %v", len(c.Masters), len(c.Replicas), c.Addrs())
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		if got := redisCLI(t, c.Addrs()[0], "SET", key, "x"); got != "OK" {
			t.Fatalf("SET %s: %s", key, got)
		}
	}
	c.Masters[0].Kill()
	testenv.Eventually(t, 2*patience, func() bool {
		role, _, _ := strings.Cut(redisCLI(t, c.Replicas[0].Addr, "ROLE"), "\n")
		return role == "master"
	}, "the dead master's replica takes over")
}

func TestSentinelFailsOver(t *testing.T) {
	s := testenv.Sentinel(t)
	master := func() string {
		host, port, _ := strings.Cut(redisCLI(t, s.Addrs()[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName), "\n")
		return net.JoinHostPort(host, port)
	}
	if got := master(); got != s.Master.Addr {
		t.Fatalf("the sentinels' master is %s, want %s", got, s.Master.Addr)
	}
	s.Master.Kill()
	testenv.Eventually(t, 2*patience, func() bool { return master() == s.Replica.Addr },
		"the sentinels promote the replica")
}

func TestCertsSecureServers(t *testing.T) {
	certs := testenv.Certs(t)
	servers := map[string]*testenv.Server{
		"redis":     testenv.Redis(t, certs.RedisArgs()...),
		"memcached": testenv.Memcached(t, certs.MemcachedArgs()...),
	}
	for name, s := range servers {
		// A server without a client's certificate complains at the first read.
		exchange := func(config *tls.Config) error {
			conn, err := tls.Dial("tcp", s.Addr, config)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.Write([]byte("quit\r\n")); err != nil {
				return err
			}
			_, err = conn.Read(make([]byte, 1))
			if err != nil && err.Error() == "EOF" { // memcached's way to say goodbye
				return nil
			}
			return err
		}
		if err := exchange(certs.Client); err != nil {
			t.Errorf("%s, with certificates: %v", name, err)
		}
		if err := exchange(&tls.Config{RootCAs: certs.Client.RootCAs}); err == nil {
			t.Errorf("%s accepts a client without certificate", name)
		}
		if err := exchange(testenv.Certs(t).Client); err == nil {
			t.Errorf("%s is trusted by a client of another authority", name)
		}
	}
}

const helloConfig = `
static_resources:
  listeners:
  - name: hello
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: hello
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{match: {prefix: /}, direct_response: {status: 218}}]
`

func TestEnvoyServesItsConfiguration(t *testing.T) {
	e := testenv.Envoy(t, helloConfig)
	serves := func() bool {
		resp, err := http.Get("http://" + e.Listener("hello") + "/")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 218
	}
	if !serves() {
		t.Fatal("Envoy does not answer as configured")
	}
	if got := e.Admin("/stats?filter=hello.downstream_rq_2xx"); !strings.Contains(got, "downstream_rq_2xx: 1") {
		t.Fatalf("admin interface: %s", got)
	}
	e.Restart()
	if !serves() {
		t.Fatal("Envoy does not answer as configured after a restart")
	}
}
