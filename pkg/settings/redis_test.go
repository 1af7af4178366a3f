package settings_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// redisURLs returns the parts of REDIS_URL that are refused, as the error shows them.
func redisURLs(t *testing.T, kind, url string) (refused []string) {
	t.Helper()
	_, err := parse(t, "--backend-type=redis", "--redis-socket-type=tcp", "--redis-type="+kind, "--redis-url="+url)
	for _, e := range problems(t, err) {
		if e.Setting != "REDIS_URL" {
			t.Error(e)
		}
		refused = append(refused, e.Value)
	}
	return refused
}

// The store can be opened with every URL that is accepted.
func TestRedisAddresses(t *testing.T) {
	for kind, urls := range map[string][]string{
		"SINGLE": {
			"h:1", "h", "[::1]:1", "[::1]", "::1", "fe80::1%eth0", "redis://h", "redis://h:1/2", "rediss://u:p@[::1]", "redis://:p@ss@h/2", "redis://h?db=2&password=p",
			" h:1 ", " redis://h:1/2\n",
		},
		"SENTINEL": {"main,h", " main , h:1 , redis://u:p@h:2 ,\n rediss://u:p@[::1] ", "main,redis://:p@h:1,h:2", "main, h:1,redis://u:p@[::1],::1,rediss://h/0"},
		"CLUSTER":  {"h:1", "h,[::1],redis://u:p@h:1", " h:1 , h:2 "},
	} {
		for _, url := range urls {
			if refused := redisURLs(t, kind, url); refused != nil {
				t.Errorf("%s %s is refused", kind, url)
			}
		}
	}
	for kind, urls := range map[string][]string{
		"SINGLE": {
			"", "h:", "h:tcp", "h:0", "h:70000", ":1", "[]", "::g", "h:1:2", "https://h", "redis://", "redis://h:", "redis://h:0", "redis://h:70000", "redis://h/first", "redis://h/-1",
			"redis://h?db=first", "p@h", " ", "main,h:1", "h:1, h:2", "main,redis://:p@h:1",
		},
		"SENTINEL": {"", "main", "main,", "main,redis://h:70000", "main,h:1,h:2:3", "main,redis://h/1", " ,h:1", "main,redis://:a@h:1,redis://:b@h:2"},
		"CLUSTER":  {"", "h,", "h,redis://h:70000", "redis://h/1", "redis://u:p@h:1,redis://v:p@h:2"},
	} {
		for _, url := range urls {
			if redisURLs(t, kind, url) == nil {
				t.Errorf("%s %s is accepted", kind, url)
			}
		}
	}
}

func TestRedisSecretsAreNotShown(t *testing.T) {
	for _, tt := range []struct{ kind, url, shown string }{
		{"SINGLE", "redis://user:s3@cret@redis:port", "***@redis:port"},
		{"SINGLE", "redis://user:s3,cret@redis:port", "***@redis:port"},
		{"SINGLE", "user:s3cret@redis:6379", "***@redis:6379"},
		{"SINGLE", "s3cret@redis", "***@redis"},
		{"SINGLE", "redis://redis:port?password=s3@cret", "***"},
		{"SENTINEL", "redis://user:s3cret@redis:1", "***@redis:1"},
		{"SENTINEL", "main,redis://user:s3,cret@redis:1", "*** ***"},
		{"SENTINEL", "main,redis://user:p@s3,cret@redis:port,:1", "*** ***"},
		{"CLUSTER", "redis://user:s3,cret@redis:1,redis:2", "*** ***"},
		{"CLUSTER", "redis:1,user:s3cret@redis:2", "***"},
		{"CLUSTER", "redis:port,redis:0", "redis:port redis:0"},
	} {
		if got := strings.Join(redisURLs(t, tt.kind, tt.url), " "); got != tt.shown {
			t.Errorf("%s %s is shown as %s, want %s", tt.kind, tt.url, got, tt.shown)
		}
	}
}

// All wrong servers of a list are reported, in its order.
func TestErrorsOfOneSettingKeepTheirOrder(t *testing.T) {
	var nodes []string
	for i := range 100 {
		nodes = append(nodes, fmt.Sprintf("redis-%d:port", i))
	}
	list := strings.Join(nodes, ",")
	_, err := parse(t, "--backend-type=redis", "--redis-type=cluster", "--redis-url="+list, "--redis-persecond", "--redis-persecond-type=cluster", "--redis-persecond-url="+list)
	got := map[string][]string{}
	for _, e := range problems(t, err) {
		got[e.Setting] = append(got[e.Setting], e.Value)
	}
	if diff := cmp.Diff(map[string][]string{"REDIS_URL": nodes, "REDIS_PERSECOND_URL": nodes}, got); diff != "" {
		t.Error(diff)
	}
}

// TestRedisAddressOfATCPServerWithASocketsType: the socket's type is unix by default, so a host:port
// alone is refused with what to set, except under the name rls, where it means tcp.
func TestRedisAddressOfATCPServerWithASocketsType(t *testing.T) {
	for _, url := range []string{"redis:6379", "redis://user:secret@redis:6379"} {
		_, err := parseAs(t, "redis", "--redis-url="+url)
		_, asked := parse(t, "--backend-type=redis", "--redis-url="+url, "--redis-socket-type=unix")
		for _, err := range []error{err, asked} {
			if err == nil || !strings.Contains(err.Error(), "for host:port set REDIS_SOCKET_TYPE=tcp") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", url, err)
			}
		}
		s, err := parse(t, "--backend-type=redis", "--redis-url="+url, "--redis-persecond", "--redis-persecond-url="+url)
		if err != nil || s.Redis.SocketType != "tcp" || s.RedisPerSecond.SocketType != "tcp" {
			t.Errorf("%s: %s, %s, %v", url, s.Redis.SocketType, s.RedisPerSecond.SocketType, err)
		}
	}
	if s, err := parse(t, "--backend-type=redis", "--redis-url=/run/redis.sock"); err != nil || s.Redis.SocketType != "unix" {
		t.Error(s.Redis.SocketType, err)
	}
}

// TestRedisListsOfOneServer: a list without REDIS_TYPE is refused with the types that have lists.
func TestRedisListsOfOneServer(t *testing.T) {
	for _, kind := range []string{"tcp", "unix"} {
		for _, url := range []string{"mymaster,sentinel:26379", "mymaster, redis://:secret@sentinel:26379", "node-1:6379,node-2:6379"} {
			_, err := parse(t, "--backend-type=redis", "--redis-socket-type="+kind, "--redis-url="+url)
			if err == nil || !strings.Contains(err.Error(), "for a list set REDIS_TYPE=SENTINEL (the master's name, then the sentinels) or REDIS_TYPE=CLUSTER") ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, %s: %v", kind, url, err)
			}
		}
	}
	if _, err := parse(t, "--backend-type=redis", "--redis-url=/run/a,b.sock"); err != nil {
		t.Error(err)
	}
}

// TestSpacesInListsOfAddresses: lists may have spaces, and line breaks of YAML, everywhere.
func TestSpacesInListsOfAddresses(t *testing.T) {
	s, err := parse(t, "--backend-type=memcache", "--memcache-host-port= a:1 , [::1]:2 ,\n/run/m.sock ", "--admin-token-file=tokens",
		"--admin-fleet= a:1 , b:2\n", "--admin-allowed-hosts= a.example , ::1 ")
	if err != nil {
		t.Fatal(err)
	}
	got := [][]string{s.Memcache.Servers, s.Admin.Replicas(), s.Admin.Hosts()}
	want := [][]string{{"a:1", "[::1]:2", "/run/m.sock"}, {"a:1", "b:2"}, {"127.0.0.1", "a.example", "::1", "a", "b"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHostsInBrackets: an IPv6 address to listen on may be written as in a URL.
func TestHostsInBrackets(t *testing.T) {
	s, err := parse(t, "--host=[::]", "--grpc-host= [::1] ", "--debug-host=::", "--admin-host=[::1]", "--statsd-host=[fd00::1]")
	if err != nil {
		t.Fatal(err)
	}
	got := []string{s.Server.Host, s.GRPC.Host, s.Server.DebugHost, s.Admin.Host, s.Metrics.StatsdHost}
	if diff := cmp.Diff([]string{"::", "::1", "::", "::1", "fd00::1"}, got); diff != "" || !s.Admin.Loopback() {
		t.Error(diff)
	}
}
