package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// fleet starts n processes on one Redis, each of which knows all of them.
func fleet(t *testing.T, n int, rules string, settings ...string) (all []*service, list []string, server *testenv.Server) {
	t.Helper()
	server = testenv.Redis(t)
	ports := make([]int, n)
	for i := range ports {
		ports[i] = testenv.FreePort(t)
		list = append(list, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	for i := range n {
		all = append(all, begin(t, rules, append(append(withOperator(t),
			"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+server.Addr, fmt.Sprintf("REPLICAS=%d", n),
			fmt.Sprintf("ADMIN_PORT=%d", ports[i]), "ADMIN_FLEET="+strings.Join(list, ",")), settings...)...))
	}
	for _, s := range all {
		s.connect()
		testenv.Eventually(t, patience, s.healthy, "the program is healthy")
	}
	return all, list, server
}

const topByHits = "/v1/top?by=hits&fleet=true"

// fleetDocument is what the tests read of the documents of a fleet.
type fleetDocument struct {
	Replicas []struct {
		Address, Error, Name, Hash string
		OK                         bool
	}
	Traffic struct{ Total struct{ Requests int } }
	Differ  bool
	Rows    []struct{ Hits int }
}

// ofFleet asks for the document of a path and returns how long the answer took.
func (s *service) ofFleet(path string) (d fleetDocument, took time.Duration) {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+s.addrs["admin"]+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	began := time.Now()
	response, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	took = time.Since(began)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %v, %v in %s", path, response.Status, err, text)
	}
	return d, took
}

// TestFleetWithoutSome: of five replicas one is killed and one is frozen. Each of the others
// answers for those that are there, and says which ones are not, in little more than a second.
func TestFleetWithoutSome(t *testing.T) {
	t.Parallel()
	all, list, _ := fleet(t, 5, "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 1000}}\n")
	for i, s := range all {
		for range i + 1 {
			s.hit("d", desc("k", "x"))
		}
	}
	sum := 1 + 2 + 3 + 4 + 5
	for _, s := range all {
		s.within(5*time.Second, func() bool {
			top, _ := s.ofFleet(topByHits)
			return len(top.Rows) == 1 && top.Rows[0].Hits == sum && len(top.Replicas) == 5
		}, "top has the hits of all")
		testenv.Eventually(t, patience, func() bool { d, _ := s.ofFleet("/v1/status?fleet=true"); return d.Traffic.Total.Requests == sum }, "the status has the requests of all")
	}
	_ = all[3].cmd.Process.Kill()
	<-all[3].ended
	testenv.Freeze(t, all[4].cmd.Process)
	stalls := testenv.WatchStalls(t, all[0].cmd.Process.Pid, all[1].cmd.Process.Pid, all[2].cmd.Process.Pid)
	for _, s := range all[:3] {
		for _, path := range []string{topByHits, "/v1/status?fleet=true", "/v1/rules?fleet=true", "/v1/audit?fleet=true"} {
			began := time.Now()
			d, took := s.ofFleet(path)
			if took -= stalls.Since(began); took > 1500*time.Millisecond {
				t.Errorf("%s took %v", path, took)
			}
			for i, r := range d.Replicas {
				if r.Address != list[i] || r.OK != (i < 3) || r.OK != (r.Error == "") || r.OK != (r.Name != "") || (r.Hash != "") != (i < 3 && (strings.HasPrefix(path, "/v1/status") || strings.HasPrefix(path, "/v1/rules"))) {
					t.Errorf("%s: got %+v", path, r)
				}
			}
			if len(d.Replicas) != 5 || path == topByHits && d.Rows[0].Hits != 1+2+3 {
				t.Errorf("%s: got %+v", path, d)
			}
		}
	}
}

// TestFleetFromDNS: a name stands for all its addresses, and each replica knows which one is
// its own. A replica that the name gets later is asked, too.
func TestFleetFromDNS(t *testing.T) {
	t.Parallel()
	dns, command := nameServer(t, "127.0.53.18", [4]byte{127, 0, 0, 2})
	dns.replicas.Store(2)
	port := testenv.FreePort(t)
	var all []*service
	for i := range 3 {
		all = append(all, beginAs(t, command, onError, append(withOperator(t), fmt.Sprintf("ADMIN_HOST=127.0.0.%d", i+2),
			fmt.Sprintf("ADMIN_PORT=%d", port), fmt.Sprintf("ADMIN_FLEET=rls-headless.default.svc:%d", port), "BACKEND_TYPE=memory")...))
	}
	for _, s := range all {
		s.connect()
	}
	for n := 2; n <= 3; n++ {
		dns.replicas.Store(int32(n))
		for _, s := range all[:n] {
			testenv.Eventually(t, 2*patience, func() bool {
				d, _ := s.ofFleet("/v1/audit?fleet=true")
				for i, r := range d.Replicas {
					if want := fmt.Sprintf("127.0.0.%d:%d", i+2, port); r.Address != want || !r.OK {
						return false
					}
				}
				return len(d.Replicas) == n
			}, fmt.Sprintf("%d replicas answer", n))
		}
	}
}

// TestRulesOfAFleetDiffer: replicas with different rules stand out.
func TestRulesOfAFleetDiffer(t *testing.T) {
	t.Parallel()
	all, _, _ := fleet(t, 2, "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 1000}}\n")
	if d, _ := all[0].ofFleet("/v1/rules?fleet=true"); d.Differ {
		t.Errorf("equal rules differ: %+v", d)
	}
	all[1].write("rules.yaml", "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: year, requests_per_unit: 2000}}\n")
	all[1].inForce("2000")
	for _, path := range []string{"/v1/status?fleet=true", "/v1/rules?fleet=true"} {
		testenv.Eventually(t, patience, func() bool {
			d, _ := all[0].ofFleet(path)
			return d.Differ && len(d.Replicas) == 2 && d.Replicas[0].Hash != d.Replicas[1].Hash
		}, path+" says that the rules differ")
	}
}

// TestAResetReachesEveryReplica: a replica that has leased hits of a limit, remembers that it
// is full or has decided alone goes by the new count as soon as another one has reset it.
func TestAResetReachesEveryReplica(t *testing.T) {
	t.Parallel()
	const rules = `
domain: d
descriptors:
- {key: full, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: held, rate_limit: {unit: year, requests_per_unit: 10000, lease: {share: 50%, ttl: 10s}}}
- {key: owed, rate_limit: {unit: year, requests_per_unit: 10, on_error: local}}
`
	all, _, server := fleet(t, 2, rules, "LOCAL_CACHE_SIZE_IN_BYTES=1000000")
	a, b := all[0], all[1]
	for _, matching := range []bool{false, true} {
		reset := func(key string) {
			t.Helper()
			body := inD(key)
			if matching {
				body = fmt.Sprintf(`{"domain":"d","rule":"d.%s","all_matching":true}`, key)
			}
			if code, got := a.operate("/v1/reset", body); code != 200 || got.Changed < 1 || len(got.Replicas) != 2 || !got.Replicas[0].OK || !got.Replicas[1].OK {
				t.Fatalf("got %d %+v", code, got)
			}
		}

		b.want("d", costing(10, desc("full", "x")), ok, 0)
		before := b.stat("ratelimit_localcache_hitCount")
		testenv.Eventually(t, patience, func() bool {
			b.want("d", desc("full", "x"), over, 0)
			return b.stat("ratelimit_localcache_hitCount") > before
		}, "b denies from memory")
		reset("full")
		b.want("d", desc("full", "x"), ok, 9)

		testenv.Eventually(t, patience, func() bool { b.hit("d", desc("held", "x")); return b.stat("rls_lease_hits") > 50 }, "b holds hits")
		reset("held")
		if held := b.stat("rls_lease_hits"); held != 0 {
			t.Errorf("b holds %v hits after the reset", held)
		}
		b.want("d", desc("held", "x"), ok, 9999)
		if got := a.counter("held").Remaining; got != 9999 {
			t.Errorf("%d remain after the first hit", got)
		}

		b.want("d", desc("owed", "x"), ok, 9)
		server.Pause()
		testenv.Eventually(t, patience, func() bool { return b.hit("d", desc("owed", "x")).Code == over }, "b has used its share")
		server.Resume()
		testenv.Eventually(t, patience, func() bool { c := a.counter("owed"); return c.Error == "" && c.Count >= 6 }, "b has charged what it admitted")
		reset("owed")
		b.want("d", costing(10, desc("owed", "x")), ok, 0)
		if got := a.counter("owed").Remaining; got != 0 {
			t.Errorf("%d remain, want 0", got)
		}
		for _, key := range []string{"full", "held", "owed"} {
			reset(key)
		}
	}
}

// inD is a document about a request with one entry.
func inD(key string) string {
	return fmt.Sprintf(`{"domain":"d","descriptors":[{"entries":[{"key":%q,"value":"x"}]}]}`, key)
}

// counter is the limit of a request as the store counts it.
func (s *service) counter(key string) (limit struct {
	Count, Granted, Remaining int
	Error                     string
}) {
	s.t.Helper()
	code, got := s.operate("/v1/get", inD(key))
	if code != 200 {
		s.t.Fatalf("got %d %+v", code, got)
	}
	return got.Descriptors[0].Limits[0]
}
