package integration

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"example.org/rls/internal/testenv"
)

//go:embed testdata/envoy_conformance.yaml
var conformanceText string

// The conformance tests hold the program, behind a real Envoy, to what Envoy and
// gateways rely on: replies, failures, actions, costs and other protocols have a
// file each.

// frontListener is a listener of Envoy. Filters and HostLimits are in YAML.
type frontListener struct {
	Name, Pipe string
	Filters    []string
	HostLimits string
}

// frontRoute is a route that every listener has. Config is the rest of it in YAML.
type frontRoute struct{ Path, Config string }

// limited is a route to the upstream with rate-limit policies.
func limited(path, policies string) frontRoute {
	return frontRoute{path, "route: {cluster: upstream, rate_limits: [" + policies + "]}"}
}

// perFilter is a route to the upstream with its own configuration of Envoy's
// rate-limit filter.
func perFilter(path, config string) frontRoute {
	return frontRoute{path, `route: {cluster: upstream}, typed_per_filter_config: {envoy.filters.http.ratelimit: {` +
		`"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, ` + config + `}}`}
}

// rateLimit is Envoy's rate-limit filter that asks a service, with more fields.
// Unless they say otherwise, Envoy denies a request when the service fails.
func rateLimit(service, fields string) string {
	return `{name: envoy.filters.http.ratelimit, typed_config: {` +
		`"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: edge, ` + fields +
		`, rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: ` + service + `}}}}}`
}

// patiently has Envoy wait for the service and admit no request without it.
const patiently = "timeout: 10s, failure_mode_deny: true"

// headerToMetadata is Envoy's filter header_to_metadata.
func headerToMetadata(rules string) string {
	return `{name: envoy.filters.http.header_to_metadata, typed_config: {` +
		`"@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config, ` + rules + `}}`
}

// front is an Envoy between clients and an upstream, and the services that it asks.
type front struct {
	envoy   *testenv.EnvoyServer
	clients map[string]*http.Client // by listener
}

// startFront starts Envoy and an upstream. The upstream answers "X: v" for each
// header "answer-X: v" of a request, with the headers that it got as the body.
func startFront(t *testing.T, services map[string]*service, listeners []frontListener, routes []frontRoute) *front {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			if header, found := strings.CutPrefix(name, "Answer-"); found {
				w.Header()[header] = values
			}
		}
		_ = r.Header.Write(w)
	}))
	t.Cleanup(upstream.Close)
	ports := map[string]string{}
	for name, s := range services {
		ports[name] = portOf(t, s.addrs["gRPC"])
	}
	f := &front{clients: map[string]*http.Client{}, envoy: startEnvoy(t, conformanceText, map[string]any{
		"Listeners": listeners, "Routes": routes, "Services": ports, "Upstream": portOf(t, upstream.Listener.Addr().String()),
	})}
	for _, l := range listeners {
		network, addr := "unix", l.Pipe
		if l.Pipe == "" {
			network, addr = "tcp", f.envoy.Listener(l.Name)
		}
		transport := &http.Transport{MaxIdleConnsPerHost: 100, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
		t.Cleanup(transport.CloseIdleConnections)
		f.clients[l.Name] = &http.Client{Timeout: patience, Transport: transport}
	}
	return f
}

// startEnvoy starts Envoy with a template of a configuration.
func startEnvoy(t *testing.T, text string, data map[string]any) *testenv.EnvoyServer {
	t.Helper()
	var config strings.Builder
	if err := template.Must(template.New("envoy").Parse(text)).Execute(&config, data); err != nil {
		t.Fatal(err)
	}
	return testenv.Envoy(t, config.String())
}

func portOf(t testing.TB, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// answer is the response that a client of Envoy got.
type answer struct {
	code   int
	header http.Header
	body   string
}

// try sends a GET with headers, given as "name: value".
func (f *front) try(listener, path string, headers ...string) (answer, error) {
	req, err := http.NewRequest(http.MethodGet, "http://front"+path, nil)
	if err != nil {
		return answer{}, err
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Add(name, value)
	}
	resp, err := f.clients[listener].Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}, err
}

// want is try, and fails the test unless the answer has the status code.
func (f *front) want(t *testing.T, code int, listener, path string, headers ...string) answer {
	t.Helper()
	a, err := f.try(listener, path, headers...)
	if err != nil {
		t.Fatal(err)
	}
	if a.code != code {
		t.Fatalf("%s %s: %d, want %d: %s", path, headers, a.code, code, a.body)
	}
	return a
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

// counter reads a counter of Envoy; it is 0 before Envoy first counts.
func (f *front) counter(t *testing.T, name string) int {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `: (\d+)$`).FindStringSubmatch(f.envoy.Admin("/stats?filter=" + regexp.QuoteMeta(name)))
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// wantCounter waits until one of Envoy's counters has a value.
func (f *front) wantCounter(t *testing.T, name string, want int) {
	t.Helper()
	testenv.Eventually(t, patience, func() bool { return f.counter(t, name) == want }, fmt.Sprint(name, " is ", want))
}
