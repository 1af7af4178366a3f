package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/internal/testenv"
)

// TestTablesFromAnAddress: rules from files and over xDS name a table on a server that wants a client
// certificate and a token. It is away at the start and later, and counters outlive all of that.
func TestTablesFromAnAddress(t *testing.T) {
	for _, kind := range []string{"FILE", "SOTW", "DELTA"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			authority := testenv.Certs(t)
			var table atomic.Pointer[string]
			has := func(text string) { table.Store(&text) }
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch text := *table.Load(); {
				case r.Header.Get("Authorization") != "Bearer sesame" || len(r.TLS.PeerCertificates) == 0:
					w.WriteHeader(http.StatusForbidden)
				case text == "":
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					_, _ = io.WriteString(w, text)
				}
			}))
			server.TLS = authority.Server
			server.StartTLS()
			defer server.Close()
			has("")
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			settings := []string{
				"TABLE_TLS_CACERT=" + authority.CAFile, "TABLE_TLS_CLIENT_CERT=" + authority.ClientCertFile,
				"TABLE_TLS_CLIENT_KEY=" + authority.ClientKeyFile, "TABLE_TOKEN_FILE=" + token,
			}
			url := server.URL + "/tenants.csv"
			rules := "domain: all\ndescriptors:\n- {key: tenant, rate_limit: {unit: year, requests_per_unit: 10, table: {url: \"" + url + "\", every: 1s}}}\n"
			if kind != "FILE" {
				fields, err := structpb.NewStruct(map[string]any{"rls": map[string]any{"table": map[string]any{"url": url, "every": "1s"}}})
				if err != nil {
					t.Fatal(err)
				}
				at, _ := startPlane(t, &ratelimit.RateLimitConfig{Name: "all", Domain: "all", Descriptors: []*ratelimit.RateLimitDescriptor{{
					Key: "tenant", RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_YEAR, RequestsPerUnit: 10}, Metadata: fields,
				}}})
				rules, settings = "", append(settings, xdsAt(at, kind)...)
			}
			s := launch(t, rules, settings...)
			s.logs(url + " cannot be read: the server answers 503 Service Unavailable")
			testenv.Eventually(t, patience, func() bool { return s.stat("rls_config_refused") == 1 }, "the rules are refused")
			if s.healthy() {
				t.Error("the table never came, and the process is healthy")
			}

			has("value,requests_per_unit\nacme,100\n")
			testenv.Eventually(t, patience, s.healthy, "the table has come")
			acme := desc("tenant", "acme")
			hit := func(limit, remaining uint32) {
				t.Helper()
				if got := s.hit("all", acme); got.CurrentLimit.GetRequestsPerUnit() != limit || got.LimitRemaining != remaining {
					t.Errorf("got %v, want a limit of %d and %d remaining", got, limit, remaining)
				}
			}
			hit(100, 99)
			if got := s.hit("all", desc("tenant", "new")); got.CurrentLimit.GetRequestsPerUnit() != 10 {
				t.Errorf("a tenant without a row has %v", got)
			}
			s.inForce(`table: {url: "` + url + `", entry: "tenant", rows: 1`)

			has("")
			testenv.Eventually(t, patience, func() bool { return s.stat("rls_config_refused") == 1 }, "a failed fetch is reported")
			hit(100, 98)
			has("value,requests_per_unit\nacme,-1\n")
			s.logs(url + `:2:6: requests_per_unit: must be a whole number`)
			hit(100, 97)
			has("value,requests_per_unit\nacme,50\nglobex,5\n")
			s.inForce("rows: 2")
			hit(50, 46)
			if s.stat("rls_config_refused") != 0 || strings.Count(s.log.String(), "table is fetched again") != 1+1 { // after the start, and now
				t.Errorf("refused %v, and the log is\n%s", s.stat("rls_config_refused"), s.log)
			}
		})
	}
}
