package integration

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// These tests put load and failures on recipes that the test of tools/demo only plays.

// recipeFile returns the text of a file of a recipe.
func recipeFile(t *testing.T, recipe, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/recipes", recipe, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// recipeRules returns the rules of a recipe, with more descriptors at their end.
func recipeRules(t *testing.T, recipe, more string) string {
	t.Helper()
	return recipeFile(t, recipe, "rules/"+recipe+".yaml") + more
}

// gateway is an Envoy with the configuration of a recipe.
type gateway struct{ *testenv.EnvoyServer }

// startRecipe starts the Envoy of a recipe in front of m. It asks s, and waits longer for the
// answer than the recipe says.
func startRecipe(t *testing.T, recipe string, m *model, s *service) gateway {
	t.Helper()
	return gateway{testenv.Envoy(t, strings.NewReplacer(
		"port_value: 8000", "port_value: 0",
		"port_value: 8090", "port_value: "+portOf(t, m.Listener.Addr().String()),
		"port_value: 8081", "port_value: "+portOf(t, s.addrs["gRPC"]),
		"timeout: 1s", "timeout: 10s",
	).Replace(recipeFile(t, recipe, "envoy.yaml")))}
}

// stream is an answer that has begun.
type stream struct {
	code   int
	header http.Header
	body   io.ReadCloser
}

// ask sends a request with headers, given as "name: value", and returns its answer as soon as
// that begins.
func (g gateway) ask(ctx context.Context, t *testing.T, headers ...string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+g.Listener("front")+"/v1/chat/completions",
		strings.NewReader(`{"messages":[]}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &stream{resp.StatusCode, resp.Header, resp.Body}, nil
}

// want asks, expects the code, and returns the headers and the body.
func (g gateway) want(t *testing.T, code int, headers ...string) (http.Header, string) {
	t.Helper()
	a, err := g.ask(t.Context(), t, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a.finish(t, code)
}

// finish reads the rest of the answer, and expects the code.
func (a *stream) finish(t *testing.T, code int) (http.Header, string) {
	t.Helper()
	rest, err := io.ReadAll(a.body)
	_ = a.body.Close()
	if err != nil || a.code != code {
		t.Fatalf("%d, %v, want %d: %s", a.code, err, code, rest)
	}
	return a.header, string(rest)
}

// begin asks for an answer that m holds, and returns it when its first event has come.
func (g gateway) begin(ctx context.Context, t *testing.T, headers ...string) *stream {
	t.Helper()
	a, err := g.ask(ctx, t, append(headers, "x-hold: yes")...)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len(greeting))
	if _, err := io.ReadFull(a.body, first); err != nil || string(first) != greeting {
		t.Fatalf("%d, %v: the answer begins with %q", a.code, err, first)
	}
	return a
}

// beginWhenFree asks until an answer is not denied, and returns that when it begins.
func (g gateway) beginWhenFree(t *testing.T, headers ...string) (a *stream) {
	t.Helper()
	testenv.Eventually(t, patience, func() bool {
		var err error
		if a, err = g.ask(t.Context(), t, append(headers, "x-hold: yes")...); err != nil {
			t.Fatal(err)
		}
		if a.code != http.StatusOK {
			_ = a.body.Close()
		}
		return a.code == http.StatusOK
	}, "a slot is free")
	return a
}

// model is a language model. It streams answers that cost as many tokens as the header x-cost
// says. Where there is a header x-whole it answers in one piece, compressed for those that take
// it. While the test holds a user, answers with a header x-hold to that user do not end.
type model struct {
	*httptest.Server
	gates   sync.Map // by user: a channel that is closed when the answers may end
	running atomic.Int64
}

const greeting = `data: {"choices":[{"delta":{"content":"hello"}}],"usage":null}` + "\n\n"

func startModel(t *testing.T) *model {
	m := &model{}
	m.Server = httptest.NewServer(m)
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

// hold returns what lets the answers to a user end.
func (m *model) hold(user string) (release func()) {
	gate := make(chan struct{})
	m.gates.Store(user, gate)
	return func() { close(gate) }
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.running.Add(1)
	defer m.running.Add(-1)
	usage := `{"choices":[],"usage":{"total_tokens":` + r.Header.Get("x-cost") + `}}`
	if r.Header.Get("x-whole") != "" {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Accept-Encoding") == "" {
			_, _ = io.WriteString(w, usage)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		_, _ = io.WriteString(packed, usage)
		_ = packed.Close()
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, greeting)
	_ = http.NewResponseController(w).Flush()
	if gate, held := m.gates.Load(r.Header.Get("x-user")); held && r.Header.Get("x-hold") != "" {
		select {
		case <-gate.(chan struct{}):
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: "+usage+"\n\ndata: [DONE]\n\n")
}

// TestTokensArePaidForAfterwards: what streams have cost is charged when they end, whatever
// remains, and their user is denied until the debt is paid.
func TestTokensArePaidForAfterwards(t *testing.T) {
	t.Parallel()
	m := startModel(t)
	s := serve(t, recipeRules(t, "tokens", `
  - {key: user, value: quick, rate_limit: {unit: second, unit_multiplier: 3, requests_per_unit: 4000, strategy: token_bucket, overdraft: true}}
`), append(redisAt(testenv.Redis(t).Addr), "DECISION_TIMEOUT=10s", "LIMIT_RETRY_AFTER_HEADER_ENABLED=true")...)
	envoy := startRecipe(t, "tokens", m, s)
	check := func(t *testing.T, user string) *status { return s.in(t).hit("llm", costing(0, desc("user", user))) }
	inDebt := func(t *testing.T, user string) {
		t.Helper()
		testenv.Eventually(t, patience, func() bool { return check(t, user).Code == over }, "the stream is charged")
	}
	// wantElevenMinutes expects a debt of 11,000 tokens, which 1,000 tokens a minute pay.
	wantElevenMinutes := func(t *testing.T, user string) {
		t.Helper()
		header, _ := envoy.want(t, http.StatusTooManyRequests, "x-user: "+user, "x-cost: 5000")
		if wait, err := strconv.Atoi(header.Get("Retry-After")); err != nil || wait > 661 || wait <= 600 {
			t.Errorf("retry after %d s (%v), want 11 minutes", wait, err)
		}
	}
	t.Run("a stream", func(t *testing.T) {
		t.Parallel()
		release := m.hold("ann")
		a := envoy.begin(t.Context(), t, "x-user: ann", "x-cost: 12000")
		if left := check(t, "ann"); left.Code != ok || left.LimitRemaining != 1000 {
			t.Errorf("while the answer is streamed: %v, want 1000 remaining", left)
		}
		release()
		if _, rest := a.finish(t, http.StatusOK); !strings.Contains(rest, `"total_tokens":12000`) || !strings.HasSuffix(rest, "data: [DONE]\n\n") {
			t.Errorf("the rest of the answer is %q", rest)
		}
		inDebt(t, "ann")
		wantElevenMinutes(t, "ann")
		wantElevenMinutes(t, "ann") // a denied request is not charged
	})
	t.Run("three streams at once", func(t *testing.T) {
		t.Parallel()
		release := m.hold("bob")
		var all []*stream
		for range 3 {
			all = append(all, envoy.begin(t.Context(), t, "x-user: bob", "x-cost: 4000"))
		}
		release()
		for _, a := range all {
			a.finish(t, http.StatusOK)
		}
		testenv.Eventually(t, patience, func() bool { return check(t, "bob").DurationUntilReset.AsDuration() > 10*time.Minute }, "all are charged")
		wantElevenMinutes(t, "bob")
	})
	t.Run("an answer in one piece", func(t *testing.T) {
		t.Parallel()
		envoy.want(t, http.StatusOK, "x-user: carl", "x-cost: 12000", "x-whole: yes")
		inDebt(t, "carl")
		wantElevenMinutes(t, "carl")
	})
	t.Run("until the debt is paid", func(t *testing.T) {
		t.Parallel()
		release := m.hold("quick")
		a := envoy.begin(t.Context(), t, "x-user: quick", "x-cost: 12000")
		ended := time.Now()
		release()
		a.finish(t, http.StatusOK)
		inDebt(t, "quick")
		testenv.Eventually(t, patience, func() bool { return check(t, "quick").Code == ok }, "the debt is paid")
		if took := time.Since(ended); took < 6*time.Second { // two windows
			t.Errorf("8,000 tokens were paid within %v by 4,000 in 3 s", took)
		}
		envoy.want(t, http.StatusOK, "x-user: quick", "x-cost: 1")
	})
}

// Denied requests, which have cost nothing, make Envoy log nothing.
func TestDeniedTokensAreNoWarning(t *testing.T) {
	t.Parallel()
	m := startModel(t)
	s := serve(t, recipeRules(t, "tokens", ""), "BACKEND_TYPE=memory", "DECISION_TIMEOUT=10s")
	envoy := startRecipe(t, "tokens", m, s)
	envoy.want(t, http.StatusOK, "x-user: ann", "x-cost: 12000", "x-whole: yes")
	testenv.Eventually(t, patience, func() bool { return s.in(t).hit("llm", costing(0, desc("user", "ann"))).Code == over }, "the answer is charged")
	for range 3 {
		envoy.want(t, http.StatusTooManyRequests, "x-user: ann", "x-cost: 5000")
	}
	if envoy.Logged("hits_addend") {
		t.Error("Envoy logs a warning")
	}
}

// TestReservationsThroughEnvoy: requests of a user hold 2,000 of 5,000 tokens each, and settle
// what their streams have cost.
func TestReservationsThroughEnvoy(t *testing.T) {
	t.Parallel()
	m := startModel(t)
	s := serve(t, strings.Replace(recipeRules(t, "reserve", ""), "unit: minute", "unit: year", 1), // no token comes back by time
		append(redisAt(testenv.Redis(t).Addr), "DECISION_TIMEOUT=10s")...)
	envoy := startRecipe(t, "reserve", m, s)
	left := func() uint32 {
		return s.hit("llm", costing(0, desc("user", "ann", "request_id", "a look"))).LimitRemaining
	}
	settled := func(want uint32) {
		t.Helper()
		testenv.Eventually(t, patience, func() bool { return left() == want }, fmt.Sprint("tokens left: ", want))
	}
	release := m.hold("ann")
	id := "x-request-id: 7f9c1a52-0000-4000-8000-000000000000"
	first := envoy.begin(t.Context(), t, "x-user: ann", "x-cost: 500", id)
	second := envoy.begin(t.Context(), t, "x-user: ann", "x-cost: 2300", id)
	if n := left(); n != 1000 {
		t.Errorf("%d of 5,000 tokens are left beside two requests, want 1,000", n)
	}
	envoy.want(t, http.StatusTooManyRequests, "x-user: ann", "x-cost: 1", id)
	release()
	first.finish(t, http.StatusOK)
	second.finish(t, http.StatusOK)
	settled(5000 - 500 - 2300)
	envoy.want(t, http.StatusOK, "x-user: ann", "x-cost: 2200", id) // 200 more than it held
	settled(0)
	ctx, leave := context.WithCancel(t.Context())
	m.hold("bob")
	bob := envoy.begin(ctx, t, "x-user: bob", "x-cost: 1")
	leave()
	_ = bob.body.Close()
	testenv.Eventually(t, patience, func() bool { return m.running.Load() == 0 }, "the model knows that its client left")
	s.want("llm", costing(0, desc("user", "bob", "request_id", "a look")), ok, 3000) // the estimate stays charged
	envoy.want(t, http.StatusTooManyRequests, "x-user: ann", "x-cost: 1", id)
}

// TestConcurrencyOverTwoEnvoys: two Envoys and two processes on one Redis let a user run two
// requests at once.
func TestConcurrencyOverTwoEnvoys(t *testing.T) {
	t.Parallel()
	const lifetime = 4 * time.Second
	rules := recipeRules(t, "concurrency", fmt.Sprintf(`
  - key: user
    value: brief
    descriptors:
      - {key: request_id, rate_limit: {unit: second, unit_multiplier: %d, requests_per_unit: 2, strategy: concurrency, reserve: {ttl: %v}}}
`, lifetime/time.Second, lifetime))
	settings := append(redisAt(testenv.Redis(t).Addr), "DECISION_TIMEOUT=10s")
	m := startModel(t)
	var envoys []gateway
	for range 2 {
		envoys = append(envoys, startRecipe(t, "concurrency", m, serve(t, rules, settings...)))
	}
	t.Run("requests of a user", func(t *testing.T) { slots(t, envoys, m) })
	t.Run("many at the same moment", func(t *testing.T) { slotRace(t, envoys, m) })
	t.Run("an Envoy that dies", func(t *testing.T) {
		m.hold("brief")
		begun := time.Now()
		for range 2 {
			envoys[1].begin(t.Context(), t, "x-user: brief")
		}
		envoys[1].Kill()
		envoys[0].beginWhenFree(t, "x-user: brief")
		if took := time.Since(begun); took < lifetime {
			t.Errorf("a slot came back after %v, before its lifetime of %v", took, lifetime)
		}
	})
}

// slots: the third request is denied while two are under way, by either Envoy, and takes
// nobody's slot back, even if it claims the id of a request under way.
func slots(t *testing.T, envoys []gateway, m *model) {
	release := m.hold("ann")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	id := "x-request-id: 7f9c1a52-0000-4000-8000-000000000000"
	first := envoys[0].begin(t.Context(), t, "x-user: ann", id)
	second := envoys[1].begin(ctx, t, "x-user: ann", id)
	for range 4 {
		for _, envoy := range envoys {
			envoy.want(t, http.StatusTooManyRequests, "x-user: ann", id)
		}
	}
	envoys[0].want(t, http.StatusOK, "x-user: bob")
	leave() // the client goes away
	_ = second.body.Close()
	third := envoys[1].beginWhenFree(t, "x-user: ann")
	envoys[0].want(t, http.StatusTooManyRequests, "x-user: ann")
	release()
	first.finish(t, http.StatusOK)
	third.finish(t, http.StatusOK)
	envoys[0].beginWhenFree(t, "x-user: ann").finish(t, http.StatusOK)
}

// slotRace: of 20 requests at the same moment two run.
func slotRace(t *testing.T, envoys []gateway, m *model) {
	testenv.Eventually(t, patience, func() bool { return m.running.Load() == 0 }, "the other requests have ended")
	release := m.hold("many")
	var denied atomic.Int64
	var requests sync.WaitGroup
	for i := range 20 {
		requests.Go(func() {
			a, err := envoys[i%2].ask(t.Context(), t, "x-user: many", "x-hold: yes")
			if err != nil {
				t.Error(err)
				return
			}
			if a.code == http.StatusTooManyRequests {
				denied.Add(1)
			}
			_, _ = io.Copy(io.Discard, a.body)
			_ = a.body.Close()
		})
	}
	testenv.Eventually(t, patience, func() bool { return denied.Load() == 18 && m.running.Load() == 2 }, "18 are denied while 2 run")
	release()
	requests.Wait()
	if n := denied.Load(); n != 18 {
		t.Errorf("%d of 20 were denied", n)
	}
}
