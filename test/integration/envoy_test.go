package integration

import (
	_ "embed"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"example.org/rls/internal/testenv"
)

//go:embed testdata/envoy.yaml
var envoyText string

const edgeRules = `
domain: edge
descriptors:
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 3, name: per-a, strategy: sliding_log}}
  - {key: day, rate_limit: {unit: year, requests_per_unit: 9, name: per-b}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1, name: candidate}}
  - {key: enforced, rate_limit: {unit: year, requests_per_unit: 100, name: enforced}}
  - {key: ten-minutes, rate_limit: {unit: minute, unit_multiplier: 10, requests_per_unit: 5, strategy: sliding_log}}
  - {key: queue, rate_limit: {unit: second, requests_per_unit: 2, strategy: leaky_bucket, max_delay: 1s}}
  - key: nothing
    metadata: {owner: team-edge}
    rate_limit: {unit: year, requests_per_unit: 0, name: none}
`

// edge is an Envoy with an upstream behind and a service beside each of its
// two listeners.
type edge struct {
	envoy        *testenv.EnvoyServer
	listeners    map[string]string // their addresses
	draft, plain *service
	accessLog    string
}

func startEdge(t *testing.T) *edge {
	e := &edge{accessLog: filepath.Join(t.TempDir(), "access.log")}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "from the upstream")
	}))
	t.Cleanup(upstream.Close)
	e.draft = serve(t, edgeRules, "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_IETF_HEADERS_ENABLED=true",
		"LIMIT_RETRY_AFTER_HEADER_ENABLED=true", "LIMIT_PROBLEM_BODY_ENABLED=true")
	e.plain = serve(t, edgeRules, "LIMIT_X_RATELIMIT_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true")

	type listener struct{ Name, XRateLimit, Port string }
	port := func(addr string) string {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	var config strings.Builder
	err := template.Must(template.New("envoy.yaml").Parse(envoyText)).Execute(&config, map[string]any{
		"Listeners": []listener{
			{"draft", "DRAFT_VERSION_03", port(e.draft.addrs["gRPC"])},
			{"plain", "OFF", port(e.plain.addrs["gRPC"])},
		},
		"Upstream":  port(upstream.Listener.Addr().String()),
		"AccessLog": e.accessLog,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.envoy = testenv.Envoy(t, config.String())
	e.listeners = map[string]string{"draft": e.envoy.Listener("draft"), "plain": e.envoy.Listener("plain")}
	return e
}

// answer is the response that a client of Envoy got.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (e *edge) get(t *testing.T, listener, path string) answer {
	t.Helper()
	a, err := e.try(listener, path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (e *edge) try(listener, path string) (answer, error) {
	client := http.Client{Timeout: patience}
	resp, err := client.Get("http://" + e.listeners[listener] + path)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}, err
}

// wantHeaders expects values that match the patterns; "" is no such header.
func (a answer) wantHeaders(t *testing.T, patterns map[string]string) {
	t.Helper()
	for name, pattern := range patterns {
		got := a.header.Values(name)
		if pattern == "" && len(got) > 0 || pattern != "" &&
			(len(got) != 1 || !regexp.MustCompile("^(?:"+pattern+")$").MatchString(got[0])) {
			t.Errorf("%d with %s %q, want %s", a.code, name, got, pattern)
		}
	}
}

const inAnHour = `359\d|3600`

func TestBehindEnvoy(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	t.Run("clients get 200 and then 429 with headers", e.headers)
	t.Run("X-RateLimit with the epoch", e.epoch)
	t.Run("a shadow rule shows in Envoy's headers only", e.shadow)
	t.Run("unit_multiplier widens the window", e.multiplier)
	t.Run("a queue holds the answer", e.queue)
	t.Run("dynamic metadata in the access log", e.metadata) // the last: it ends Envoy
}

func (e *edge) headers(t *testing.T) {
	const policy = `3, 3;w=3600;name="per-a", 9;w=31536000;name="per-b"`
	for left := 2; left >= 0; left-- {
		a := e.get(t, "draft", "/two")
		if a.code != http.StatusOK || a.body != "from the upstream" {
			t.Fatalf("%d %s", a.code, a.body)
		}
		remaining := strconv.Itoa(left)
		a.wantHeaders(t, map[string]string{
			"X-Ratelimit-Limit": regexp.QuoteMeta(policy), "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": inAnHour,
			"Ratelimit-Limit": "3", "Ratelimit-Remaining": remaining, "Ratelimit-Reset": inAnHour,
			"Ratelimit-Policy": `"per-a";q=3;w=3600, "per-b";q=9;w=31536000`,
			"Ratelimit":        `"per-a";r=` + remaining + `;t=(` + inAnHour + `)`,
			"Retry-After":      "", "X-Envoy-Ratelimited": "",
		})
	}
	a := e.get(t, "draft", "/two")
	if a.code != http.StatusTooManyRequests {
		t.Fatalf("the fourth: %d", a.code)
	}
	a.wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": regexp.QuoteMeta(policy), "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": inAnHour,
		"Ratelimit-Limit": "3", "Ratelimit-Remaining": "0", "Ratelimit-Reset": inAnHour,
		"Ratelimit-Policy": `"per-a";q=3;w=3600, "per-b";q=9;w=31536000`,
		"Ratelimit":        `"per-a";r=0;t=(` + inAnHour + `)`,
		"Retry-After":      inAnHour, "X-Envoy-Ratelimited": "true",
		"Content-Type": "application/problem\\+json",
	})
	var problem struct {
		Type     string
		Title    string
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	if problem.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || problem.Title == "" ||
		problem.Status != http.StatusTooManyRequests || !slices.Equal(problem.Violated, []string{"per-a"}) {
		t.Errorf("body %s", a.body)
	}
}

func (e *edge) epoch(t *testing.T) {
	a := e.get(t, "plain", "/two")
	a.wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": `\d{10}`,
		"Ratelimit-Limit": "", "Ratelimit": "", "Ratelimit-Policy": "",
	})
	at, err := strconv.ParseInt(a.header.Get("X-Ratelimit-Reset"), 10, 64)
	if left := time.Until(time.Unix(at, 0)); err != nil || left < 59*time.Minute || left > time.Hour+2*time.Second {
		t.Errorf("the quota is back in %v", left)
	}
}

func (e *edge) shadow(t *testing.T) {
	for left := 99; left > 96; left-- {
		a := e.get(t, "draft", "/shadow")
		if a.code != http.StatusOK {
			t.Fatalf("%d %s", a.code, a.body)
		}
		remaining := strconv.Itoa(left)
		a.wantHeaders(t, map[string]string{
			"X-Ratelimit-Limit": `1, 1;w=31536000;name="candidate", 100;w=31536000;name="enforced"`, "X-Ratelimit-Remaining": "0",
			"Ratelimit-Limit": "100", "Ratelimit-Remaining": remaining,
			"Ratelimit-Policy": `"enforced";q=100;w=31536000`,
			"Ratelimit":        `"enforced";r=` + remaining + `;t=\d+`,
			"Retry-After":      "", "X-Envoy-Ratelimited": "",
		})
	}
}

func (e *edge) multiplier(t *testing.T) {
	e.get(t, "draft", "/ten-minutes").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "5, 5;w=600", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "599|600",
		"Ratelimit-Policy": `"5-per-600s";q=5;w=600`, "Ratelimit": `"5-per-600s";r=4;t=(599|600)`,
	})
}

func (e *edge) metadata(t *testing.T) {
	if a := e.get(t, "plain", "/nothing?metadata"); a.code != http.StatusTooManyRequests {
		t.Fatalf("%d", a.code)
	}
	e.envoy.Stop() // it writes its log every ten seconds, and at its end
	log, err := os.ReadFile(e.accessLog)
	if err != nil {
		t.Fatal(err)
	}
	var entry struct {
		Path, Flags string
		Code        int
		Ratelimit   map[string]any
	}
	for line := range strings.Lines(string(log)) {
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Path == "/nothing?metadata" {
			break
		}
	}
	retry, _ := entry.Ratelimit["retry_after"].(float64)
	delete(entry.Ratelimit, "retry_after")
	want := map[string]any{
		"domain": "edge", "rule": "none", "strategy": "fixed_window", "limit": 0.0, "remaining": 0.0,
		"descriptors": []any{map[string]any{"entries": []any{"nothing=plain"}}},
	}
	if entry.Code != http.StatusTooManyRequests || entry.Flags != "RL" || retry < 1 || !reflect.DeepEqual(entry.Ratelimit, want) {
		t.Errorf("the access log has %+v, retry after %v, want %v", entry, retry, want)
	}
}

// queue: two requests a second pass, each in its turn. A request whose turn comes
// in more than a second is denied.
func (e *edge) queue(t *testing.T) {
	var passed, denied int
	var last time.Duration
	start := time.Now()
	var mu sync.Mutex
	var requests sync.WaitGroup
	for range 8 {
		requests.Go(func() {
			a, err := e.try("draft", "/queue")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && a.code == http.StatusOK:
				passed++
				last = time.Since(start)
			case err == nil && a.code == http.StatusTooManyRequests:
				denied++
			default:
				t.Errorf("%v %d %s", err, a.code, a.body)
			}
		})
	}
	requests.Wait()
	if passed < 3 || denied == 0 {
		t.Errorf("%d passed, %d were denied", passed, denied)
	}
	if turns := time.Duration(passed-1) * 500 * time.Millisecond; last < turns-50*time.Millisecond {
		t.Errorf("%d passed within %v", passed, last)
	}
}
