package integration

import (
	"fmt"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
)

// store is a kind of store and how a user sets it up.
type store struct {
	name string
	// start starts the servers. It returns the settings, and the Redis servers
	// whose keys can be looked at.
	start func(t testing.TB) (settings, redis []string)
}

var stores = []store{
	{"memory", func(testing.TB) ([]string, []string) { return []string{"BACKEND_TYPE=memory"}, nil }},
	{"Redis", func(t testing.TB) ([]string, []string) {
		addr := testenv.Redis(t).Addr
		return redisAt(addr), []string{addr}
	}},
	{"Redis by URL with password and database", func(t testing.TB) ([]string, []string) {
		addr := testenv.Redis(t, "--requirepass", "secret").Addr
		url := "redis://default:secret@" + addr
		return redisAt(url + "/3"), []string{url + "/3"}
	}},
	{"Redis by socket", func(t testing.TB) ([]string, []string) {
		path := t.TempDir() + "/redis.sock"
		testenv.Redis(t, "--unixsocket", path)
		return []string{"BACKEND_TYPE=redis", "REDIS_URL=" + path}, []string{"unix://" + path}
	}},
	{"Valkey", func(t testing.TB) ([]string, []string) {
		addr := testenv.Valkey(t).Addr
		return redisAt(addr), []string{addr}
	}},
	{"Redis cluster", func(t testing.TB) ([]string, []string) {
		cluster := testenv.RedisCluster(t, 3, 0)
		return clusterAt(cluster), cluster.Addrs()
	}},
	{"Redis with sentinels", func(t testing.TB) ([]string, []string) {
		set := testenv.Sentinel(t)
		return sentinelsAt(set), []string{set.Master.Addr}
	}},
	{"Redis and another for seconds", func(t testing.TB) ([]string, []string) {
		main, seconds := testenv.Redis(t).Addr, testenv.Redis(t).Addr
		return perSecondAt(main, seconds), []string{main, seconds}
	}},
	{"Redis over TLS for a user of its own", func(t testing.TB) ([]string, []string) {
		tls := testenv.Certs(t)
		redis := testenv.Redis(t, append(tls.RedisArgs(), "--user", "limits", "on", ">secret", "~rl_*", "+@all")...)
		return append(redisAt(redis.Addr), "REDIS_AUTH=limits:secret", "REDIS_TLS=true", "REDIS_TLS_CACERT="+tls.CAFile,
			"REDIS_TLS_CLIENT_CERT="+tls.ClientCertFile, "REDIS_TLS_CLIENT_KEY="+tls.ClientKeyFile), nil
	}},
	{"memcached", func(t testing.TB) ([]string, []string) {
		return memcachedAt(testenv.Memcached(t).Addr), nil
	}},
	{"two memcacheds", func(t testing.TB) ([]string, []string) {
		return memcachedAt(testenv.Memcached(t).Addr, testenv.Memcached(t).Addr), nil
	}},
	{"memcached over TLS", func(t testing.TB) ([]string, []string) {
		tls := testenv.Certs(t)
		return append(memcachedAt(testenv.Memcached(t, tls.MemcachedArgs()...).Addr), "MEMCACHE_TLS=true", "MEMCACHE_TLS_CACERT="+tls.CAFile,
			"MEMCACHE_TLS_CLIENT_CERT="+tls.ClientCertFile, "MEMCACHE_TLS_CLIENT_KEY="+tls.ClientKeyFile), nil
	}},
}

func redisAt(urls ...string) []string {
	return []string{"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + strings.Join(urls, ",")}
}

func clusterAt(c *testenv.Cluster) []string {
	return append(redisAt(c.Addrs()...), "REDIS_TYPE=cluster")
}

func sentinelsAt(s *testenv.SentinelSetup) []string {
	return append(redisAt(append([]string{s.MasterName}, s.Addrs()...)...), "REDIS_TYPE=sentinel")
}

func perSecondAt(main, seconds string) []string {
	return append(redisAt(main), "REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+seconds)
}

func memcachedAt(addrs ...string) []string {
	return []string{"BACKEND_TYPE=memcache", "MEMCACHE_HOST_PORT=" + strings.Join(addrs, ",")}
}

// Windows of a year neither end during a test nor give back a whole hit.
const backendRules = `
domain: all
descriptors:
  - {key: fixed_window, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: first_hit, rate_limit: {unit: year, requests_per_unit: 5, window: from_first_hit}}
  - {key: sliding_window, rate_limit: {unit: year, requests_per_unit: 5, strategy: sliding_window}}
  - {key: sliding_log, rate_limit: {unit: year, requests_per_unit: 5, strategy: sliding_log}}
  - {key: token_bucket, rate_limit: {unit: year, requests_per_unit: 5, strategy: token_bucket}}
  - {key: gcra, rate_limit: {unit: year, requests_per_unit: 5, strategy: gcra, burst: 5}}
  - {key: leaky_bucket, rate_limit: {unit: year, requests_per_unit: 5, strategy: leaky_bucket}}
  - {key: one, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: second, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: a_b, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: a, rate_limit: {unit: year, requests_per_unit: 1}}
  - key: several
    rate_limits:
      - {unit: year, requests_per_unit: 5, name: long, window: from_first_hit}
      - {unit: day, requests_per_unit: 3, name: short, strategy: sliding_log}
`

const admittedRules = `
domain: admitted
charge: admitted
descriptors:
  - {key: plenty, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: scarce, rate_limit: {unit: year, requests_per_unit: 1, strategy: gcra}}
  - key: tried
    rate_limits:
      - {unit: year, requests_per_unit: 10}
      - {unit: year, requests_per_unit: 3, shadow_mode: true}
      - {unit: second, requests_per_unit: 1000, strategy: sliding_window, shadow_mode: true}
`

// TestEveryStore: users see the same with every store.
func TestEveryStore(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			settings, redis := store.start(t)
			s := serve(t, backendRules, append(settings, "CACHE_KEY_PREFIX=rl_", "RESPONSE_DYNAMIC_METADATA=true")...)
			s.write("admitted.yaml", admittedRules)
			s.inForce("admitted.plenty")
			for _, strategy := range []string{"fixed_window", "first_hit", "sliding_window", "sliding_log", "token_bucket", "gcra", "leaky_bucket"} {
				t.Run(strategy, func(t *testing.T) { countsDownAndDenies(s.in(t), strategy) })
			}
			t.Run("all or nothing", func(t *testing.T) { chargesAllOrNothing(s.in(t)) })
			t.Run("watched limits", func(t *testing.T) { chargesWatchedLimits(s.in(t)) })
			t.Run("several limits", func(t *testing.T) { passesWhenAllPass(s.in(t)) })
			t.Run("hostile values", func(t *testing.T) { countsHostileValues(s.in(t)) })
			t.Run("per second", func(t *testing.T) { renewsEverySecond(s.in(t)) })
			if len(redis) > 0 {
				t.Run("keys", func(t *testing.T) { checkKeys(t, redis) })
			}
		})
	}
}

func countsDownAndDenies(s *service, strategy string) {
	d := func() *descriptor { return desc(strategy, "user 1") }
	s.want("all", costing(0, d()), ok, 5)
	for left := range uint32(5) {
		s.want("all", d(), ok, 4-left)
	}
	denied := s.hit("all", d())
	wait := denied.GetDurationUntilReset().GetSeconds()
	if denied.Code != over || denied.LimitRemaining != 0 || denied.GetCurrentLimit().GetRequestsPerUnit() != 5 || wait < 1 || wait > 365*24*3600 {
		s.t.Fatalf("the sixth hit: %v", denied)
	}
	// Each user has a counter.
	s.want("all", desc(strategy, "user 2"), ok, 4)

	// Fixed windows have counted the hit that they denied.
	counted := map[string]uint64{"fixed_window": 6, "first_hit": 6}[strategy]
	counted = max(counted, 5)
	s.want("all", refund(counted-3, d()), ok, 2)
	s.want("all", costing(2, d()), ok, 0)
	s.want("all", d(), over, 0)
	s.want("all", refund(1000, d()), ok, 5)
	s.want("all", costing(4, d()), ok, 1)
	s.want("all", costing(2, d()), over, 0)
}

func chargesAllOrNothing(s *service) {
	// Several users, whose keys lie on different nodes of a cluster.
	for i := range 5 {
		user := fmt.Sprint("user ", i)
		plenty, scarce := desc("plenty", user), desc("scarce", user)
		if resp := s.call("admitted", plenty, scarce); resp.OverallCode != ok {
			s.t.Fatalf("the first: %v", resp)
		}
		for range 3 {
			resp := s.call("admitted", plenty, scarce)
			if resp.OverallCode != over || resp.Statuses[0].Code != ok || resp.Statuses[1].Code != over {
				s.t.Fatalf("more than is there: %v", resp)
			}
		}
		s.want("admitted", costing(0, desc("plenty", user)), ok, 9)
		s.want("admitted", desc("plenty", user), ok, 8)
	}
}

// chargesWatchedLimits: a limit that is watched is charged although another limit denies the
// request, and that one is the only one that denies.
func chargesWatchedLimits(s *service) {
	for i := range 5 {
		resp := s.call("admitted", desc("tried", "user"), desc("scarce", "watched"))
		watched := resp.GetDynamicMetadata().AsMap()["shadow"].([]any)
		want, first := ok, watched[0].(map[string]any)
		if i > 0 {
			want = over
		}
		if resp.OverallCode != want || resp.Statuses[0].Code != ok || resp.Statuses[0].LimitRemaining > 9 || len(watched) != 2 ||
			first["denied"] != (i >= 3) || first["remaining"] != float64(max(0, 2-i)) {
			s.t.Fatalf("hit %d: %v", i+1, resp)
		}
	}
	s.want("admitted", desc("tried", "user"), ok, 8)
}

func passesWhenAllPass(s *service) {
	for left := range 3 {
		got := s.hit("all", desc("several", "x"))
		if got.Code != ok || got.LimitRemaining != uint32(2-left) || got.CurrentLimit.Name != "short" {
			s.t.Fatalf("hit %d: %v", left+1, got)
		}
	}
	for range 3 {
		if got := s.hit("all", desc("several", "x")); got.Code != over || got.CurrentLimit.Name != "short" {
			s.t.Fatalf("beyond the shorter: %v", got)
		}
	}
	// The denied hits were not charged to the longer limit, so a refund of the
	// three that were makes both whole.
	if got := s.hit("all", refund(3, desc("several", "x"))); got.CurrentLimit.Name != "short" || got.LimitRemaining != 3 {
		s.t.Fatalf("after a refund: %v", got)
	}
}

func countsHostileValues(s *service) {
	hostile := []string{
		"", " ", "a b", "\n", "\r\nset x 0 0 1\r\n1\r\n", "\x00", "\x7f", "}", "{", "{}", "{a}", "*", "%", "%20", "|", "=",
		"|1y|0", "ä", "\u2028", "'\"\\", "$(x)", strings.Repeat("x", 300), strings.Repeat("x", 301), strings.Repeat("é ", 5000),
	}
	for i, value := range hostile {
		guard := fmt.Sprint("guard ", i)
		resp := s.call("all", desc("one", guard), desc("one", value))
		if resp.OverallCode != ok {
			s.t.Fatalf("%.20q, first: %.500v", value, resp)
		}
		resp = s.call("all", desc("one", guard), desc("one", value))
		if resp.Statuses[0].Code != over || resp.Statuses[1].Code != over {
			s.t.Fatalf("%.20q, second: %.500v", value, resp)
		}
	}
	// Keys and values are never joined.
	s.want("all", desc("a_b", "c"), ok, 0)
	s.want("all", desc("a", "b_c"), ok, 0)
}

func renewsEverySecond(s *service) {
	denied := false
	for range 20 {
		denied = denied || s.hit("all", desc("second", "x")).Code == over
		if denied {
			break
		}
	}
	// 20 calls may have taken several seconds on a busy machine.
	testenv.Eventually(s.t, patience, func() bool {
		denied = denied || s.hit("all", costing(3, desc("second", "x"))).Code == over
		return denied
	}, "a limit of 3 per second denies")
	testenv.Eventually(s.t, patience, func() bool {
		return s.hit("all", costing(0, desc("second", "x"))).LimitRemaining == 3
	}, "the next second has its own quota")
}

func TestPerSecondLimitsLiveInTheirOwnRedis(t *testing.T) {
	t.Parallel()
	main, seconds := testenv.Redis(t).Addr, testenv.Redis(t).Addr
	s := serve(t, backendRules, perSecondAt(main, seconds)...)
	s.call("all", desc("second", "x"), desc("one", "x"), desc("sliding_log", "x"))
	for key := range keysOf(t, main) {
		if strings.Contains(key, "second") {
			t.Errorf("%q is not in the Redis for seconds", key)
		}
	}
	if got := len(keysOf(t, main)); got != 2 {
		t.Errorf("%d keys in the main Redis, want 2", got)
	}
	if got := len(keysOf(t, seconds)); got != 1 {
		t.Errorf("%d keys in the Redis for seconds, want 1", got)
	}
}

// TestBurstsDoNotUseUpTheLongTermLimit: the limits of one descriptor are charged
// together, so a client that hits its limit per second all the time is charged
// for admitted requests only on its limit per year. That holds where both
// counters are in one Redis and where per-second counters have their own.
func TestBurstsDoNotUseUpTheLongTermLimit(t *testing.T) {
	t.Parallel()
	const rules = `
domain: all
descriptors:
  - key: client
    rate_limits:
      - {unit: second, requests_per_unit: 3, name: burst}
      - {unit: year, requests_per_unit: 1000, name: sustained}
  - {key: other, rate_limit: {unit: year, requests_per_unit: 1000, name: other}}
`
	main := testenv.Redis(t).Addr
	for name, settings := range map[string][]string{
		"one Redis":                 append(redisAt(main), "CACHE_KEY_PREFIX=one_"),
		"another Redis for seconds": append(perSecondAt(main, testenv.Redis(t).Addr), "CACHE_KEY_PREFIX=two_"),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, rules, settings...)
			admitted := 0
			for range 40 {
				resp := s.call("all", desc("other", "x"), desc("client", "x"))
				if resp.OverallCode == ok {
					admitted++
				}
			}
			if admitted == 40 {
				t.Fatal("the limit per second denied nothing")
			}
			counted := func(key string) any {
				for k := range keysOf(t, main) {
					if strings.HasPrefix(k, strings.TrimPrefix(settings[len(settings)-1], "CACHE_KEY_PREFIX=")) && strings.Contains(k, key) && strings.Contains(k, "|365d|") {
						return operate(t, main, "").does("GET", k)
					}
				}
				return nil
			}
			if client, other := counted("client=x"), counted("other=x"); client != fmt.Sprint(admitted) || other != "40" {
				t.Errorf("%d of 40 were admitted; the limit per year counts %v of them, the other descriptor %v", admitted, client, other)
			}
		})
	}
}
