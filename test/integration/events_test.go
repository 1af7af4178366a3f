package integration

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
)

// history reads the events, the oldest first; nil if the program does not answer.
func (s *service) history() []events.Event {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+s.addrs["admin"]+"/v1/history", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	client := http.Client{Timeout: patience}
	response, err := client.Do(request)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }()
	var h admin.History
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("GET /v1/history: %v in %s", err, text)
	}
	slices.Reverse(h.Events)
	return h.Events
}

// happens waits until the kinds of the events are these, and returns the newest event.
func (s *service) happens(kinds ...string) events.Event {
	s.t.Helper()
	var got []string
	var last events.Event
	if !testenv.Poll(patience, func() bool {
		got = nil
		for _, last = range s.history() {
			got = append(got, last.Kind)
		}
		return slices.Equal(got, kinds)
	}) {
		s.t.Fatalf("events %q, want %q", got, kinds)
	}
	return last
}

// TestEvents: what happens to a process with a Redis, in order.
func TestEvents(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	s := serve(t, onError, append(append(redisAt(redis.Addr), "DRAIN_PERIOD=1m"), withOperator(t)...)...)
	s.want("d", desc("allow", "x"), ok, 8)
	kinds := []string{events.Start, events.RulesLoaded}
	if e := s.happens(kinds...); len(e.Hash) != 16 || e.Domains != 1 || e.Rules != 5 {
		t.Errorf("got %+v", e)
	}

	redis.Kill()
	for range 7 {
		s.call("d", desc("allow", "x"))
	}
	s.undecided("d", desc("error", "x"), "")
	s.call("d", desc("deny", "x"))
	kinds = append(kinds, events.StoreAway)
	if e := s.happens(kinds...); e.Address != redis.Addr || e.Role != "main" || e.Error == "" || !strings.Contains(e.Text, redis.Addr) {
		t.Errorf("got %+v", e)
	}
	redis.Restart()
	testenv.Eventually(t, patience, func() bool { // a call is the probe
		s.call("d", desc("deny", "x"))
		return len(s.history()) == len(kinds)+1
	}, "the server is back")
	kinds = append(kinds, events.StoreBack)
	e := s.happens(kinds...)
	decided := s.stat(`rls_decisions_total{decision="denied",domain="d",limit="fixed_window 9 per 365 days",policy="deny",rule="d.deny",strategy="fixed_window"}`)
	if e.Seconds <= 0 || e.Decisions != (events.Decisions{Allow: 7, Deny: uint64(decided), Error: 1}) {
		t.Errorf("got %+v, want 7 by allow, %v by deny and 1 by error", e.Return, decided)
	}

	s.write("rules.yaml", "domain: d\ndescriptors:\n  - {key: a, rate_limt: {}}\n  - {kye: b}\n")
	kinds = append(kinds, events.RulesRefused)
	if e := s.happens(kinds...); len(e.Problems) < 2 || !strings.Contains(e.Problems[0], "rules.yaml:3:") {
		t.Errorf("got %+v", e)
	}
	s.write("rules.yaml", "domain: d\ndescriptors:\n  - {key: deny, rate_limit: {unit: year, requests_per_unit: 10}}\n")
	kinds = append(kinds, events.RulesLoaded)
	if e := s.happens(kinds...); e.Rules != 1 {
		t.Errorf("got %+v", e)
	}
	if code, got := s.operate("/v1/grant", strings.Replace(about("deny", "x"), "shop", "d", 1)+`,"hits":5}`); code != 200 {
		t.Errorf("grant: %d %s", code, got.Message)
	}
	s.happens(append(kinds, "grant")...)
	s.terminate()
	s.happens(append(kinds, "grant", events.Drain)...)
}

// TestEventsOfAStoreAwayAtTheStart: the process asks for it by itself.
func TestEventsOfAStoreAwayAtTheStart(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	redis.Kill()
	s := launch(t, onError, append(redisAt(redis.Addr), withOperator(t)...)...)
	testenv.Eventually(t, patience, func() bool { return len(s.history()) == 3 }, "three events")
	redis.Restart()
	testenv.Eventually(t, patience, s.healthy, "the program is healthy")
	testenv.Eventually(t, patience, func() bool { return len(s.history()) == 4 }, "four events")
	e := s.history()[3]
	if e.Kind != events.StoreBack || e.Decisions != (events.Decisions{}) {
		t.Errorf("got %+v", e)
	}
}

func TestEventsOfRenewedCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	install := func(c *testenv.TLS) {
		for from, to := range map[string]string{c.ServerCertFile: "crt", c.ServerKeyFile: "key"} {
			text, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(file(to), text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	install(testenv.Certs(t))
	s := begin(t, plenty, append([]string{
		"BACKEND_TYPE=memory", "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + file("crt"), "GRPC_SERVER_TLS_KEY=" + file("key"),
	}, withOperator(t)...)...)
	testenv.Eventually(t, patience, s.listening, "the program listens")
	s.happens(events.Start, events.RulesLoaded)
	install(testenv.Certs(t))
	if e := s.happens(events.Start, events.RulesLoaded, events.Certificate); !strings.HasPrefix(e.Text, "The certificate of gRPC (CN=server) was renewed; it is valid until 20") {
		t.Errorf("got %+v", e)
	}
}
