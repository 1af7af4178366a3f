package docs_test

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

const backendsDoc = "docs/backends.md"

// stages start the servers of a section's example. Each returns pairs for a
// strings.Replacer: each address and file of the example with that of the test.
var stages = map[string]func(*testing.T) []string{
	"memory": func(*testing.T) []string { return nil },
	"Redis and Valkey": func(t *testing.T) []string {
		return []string{"redis.example.org:6379", testenv.Valkey(t).Addr}
	},
	"Sentinel": func(t *testing.T) []string {
		s := testenv.Sentinel(t)
		a := s.Addrs()
		return []string{"primary,", s.MasterName + ",", "sentinel-1.example.org:26379", a[0],
			"sentinel-2.example.org:26379", a[1], "sentinel-3.example.org:26379", a[2]}
	},
	"Cluster": func(t *testing.T) []string {
		a := testenv.RedisCluster(t, 3, 0).Addrs()
		return []string{"node-1.example.org:6379", a[0], "node-2.example.org:6379", a[1], "node-3.example.org:6379", a[2]}
	},
	"A Redis of its own for per-second limits": func(t *testing.T) []string {
		return []string{"redis.example.org:6379", testenv.Redis(t).Addr, "redis-seconds.example.org:6379", testenv.Redis(t).Addr}
	},
	"TLS and ACLs": func(t *testing.T) []string {
		certs := testenv.Certs(t)
		// The document's user, with the password that it shows, is the only one.
		acl := regexp.MustCompile(`ACL SETUSER (rls .*)`).FindStringSubmatch(readDoc(t, backendsDoc))
		if acl == nil {
			t.Fatal("the document has no ACL")
		}
		s := testenv.Redis(t, append(certs.RedisArgs(), append([]string{"--user"}, strings.Fields(acl[1])...)...)...)
		return []string{"redis.example.org:6379", s.Addr, "/etc/rls/tls/ca.crt", certs.CAFile,
			"/etc/rls/tls/tls.crt", certs.ClientCertFile, "/etc/rls/tls/tls.key", certs.ClientKeyFile}
	},
	"memcached": func(t *testing.T) []string {
		return []string{"memcached-1.example.org:11211", testenv.Memcached(t).Addr, "memcached-2.example.org:11211", testenv.Memcached(t).Addr}
	},
}

// TestBackendExamples serves the rules in config/ with each example.
func TestBackendExamples(t *testing.T) {
	config, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		t.Fatal(err)
	}
	rules := []string{"RUNTIME_ROOT=" + filepath.Dir(config), "RUNTIME_APPDIRECTORY=config", "RUNTIME_WATCH_ROOT=false"}
	seen := map[string]bool{}
	for _, p := range parts(t, backendsDoc) {
		if p.lang != "properties" {
			continue
		}
		seen[p.heading] = true
		t.Run(p.heading, func(t *testing.T) {
			stage := stages[p.heading]
			if stage == nil {
				t.Fatalf("%s:%d: add to stages how to run this section's example", backendsDoc, p.line)
			}
			settings := strings.NewReplacer(stage(t)...).Replace(strings.TrimSpace(p.text))
			rls := serve(t, append(strings.Split(settings, "\n"), rules...))
			inOneMinute(t)
			for n := range 6 {
				want := http.StatusOK
				if n == 5 {
					want = http.StatusTooManyRequests
				}
				if got := rls.hit("quickstart", "remote_address", "192.0.2.1"); got != want {
					t.Errorf("hit %d: %d, want %d", n+1, got, want)
				}
			}
			for _, strategy := range []string{"sliding", "log", "bucket"} {
				if got := rls.hit("strategies", strategy, "x"); got != http.StatusOK {
					t.Errorf("%s: %d, want 200", strategy, got)
				}
			}
		})
	}
	if len(seen) != len(stages) {
		t.Errorf("%s has examples for %d of %d sections", backendsDoc, len(seen), len(stages))
	}
}

// TestBackendDocNamesSettings: docs/settings.md has every variable that the
// document names.
func TestBackendDocNamesSettings(t *testing.T) { namesSettings(t, backendsDoc, 20) }

// TestBackendDocNamesMetrics: /stats has every metric that the document names, with
// one of the backends.
func TestBackendDocNamesMetrics(t *testing.T) {
	var stats string
	for _, settings := range [][]string{
		{"BACKEND_TYPE=memory"},
		{"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + testenv.Redis(t).Addr},
	} {
		rls := serve(t, append(settings, "RUNTIME_ROOT="+t.TempDir(), "RUNTIME_APPDIRECTORY="))
		stats += get(t, rls.debug+"/stats")
	}
	for _, name := range named(t, backendsDoc, "`(rls_[a-z_]+)`", 1) {
		if !regexp.MustCompile(`\n` + name + `[ {]`).MatchString(stats) {
			t.Errorf("%s names %s, which /stats does not have", backendsDoc, name)
		}
	}
}
