package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const operatorToken = "the-token-of-an-operator"

// Windows of a year neither end during a test nor give back a whole hit.
const adminRules = `
domain: shop
descriptors:
- {key: fixed_window, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: sliding_window, rate_limit: {unit: year, requests_per_unit: 10, strategy: sliding_window}}
- {key: sliding_log, rate_limit: {unit: year, requests_per_unit: 10, strategy: sliding_log}}
- {key: token_bucket, rate_limit: {unit: year, requests_per_unit: 10, strategy: token_bucket}}
- {key: gcra, rate_limit: {unit: year, requests_per_unit: 10, burst: 10, strategy: gcra}}
- {key: leaky_bucket, rate_limit: {unit: year, requests_per_unit: 10, burst: 10, strategy: leaky_bucket}}
- key: several
  rate_limits:
  - {unit: year, requests_per_unit: 10, strategy: sliding_window}
  - {unit: month, requests_per_unit: 10, strategy: token_bucket}
`

// withOperator returns settings that turn the admin API on.
func withOperator(t testing.TB) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("ops write "+operatorToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"ADMIN_PORT=0", "ADMIN_TOKEN_FILE=" + file}
}

// operated is what the tests read of the admin API's documents.
type operated struct {
	Code, Message string
	Changed       int
	Matched       int
	Replicas      []struct{ OK bool }
	Descriptors   []struct {
		Limits []struct {
			Count, Granted, Remaining int
			Error                     string
		}
	}
}

// operate posts a document to a path of the admin API.
func (s *service) operate(path, body string) (code int, a operated) {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodPost, "http://"+s.addrs["admin"]+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	client := http.Client{Timeout: patience}
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		s.t.Fatalf("%s: %v in %s", path, err, text)
	}
	return response.StatusCode, a
}

// about is the beginning of a document about a request with one entry.
func about(key, value string) string {
	return fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":%q,"value":%q}]}]`, key, value)
}

// remains checks the counters of a request: they tell the same to the operator as to
// the caller, and looking charges nothing.
func (s *service) remains(key string, want int) {
	s.t.Helper()
	for range 2 {
		code, got := s.operate("/v1/get", about(key, "ann")+"}")
		if code != 200 {
			s.t.Fatalf("%s: got %d %s", key, code, got.Message)
		}
		for _, limit := range got.Descriptors[0].Limits {
			if limit.Remaining != want || limit.Count != 10-want+limit.Granted {
				s.t.Errorf("%s: count %d, remaining %d, want %d; %s", key, limit.Count, limit.Remaining, want, limit.Error)
			}
		}
	}
	s.want("shop", costing(0, desc(key, "ann")), ok, uint32(want))
}

// TestCountersAreSteered: on each store and for each strategy an operator reads, tops
// up and resets a counter, and callers get what the operator gave.
func TestCountersAreSteered(t *testing.T) {
	t.Parallel()
	strategies := []string{"fixed_window", "sliding_window", "sliding_log", "token_bucket", "gcra", "leaky_bucket", "several"}
	for _, store := range stores {
		switch store.name {
		case "memory", "Redis", "Redis cluster", "memcached":
		default:
			continue
		}
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			settings, _ := store.start(t)
			s := serve(t, adminRules, append(settings, withOperator(t)...)...)
			for _, key := range strategies {
				s.want("shop", costing(10, desc(key, "ann")), ok, 0)
				s.remains(key, 0)
				if code, got := s.operate("/v1/grant", about(key, "ann")+`,"hits":5}`); code != 200 || got.Changed == 0 {
					t.Errorf("%s: grant: got %d %+v", key, code, got)
					continue
				}
				s.remains(key, 5)
				s.want("shop", costing(5, desc(key, "ann")), ok, 0)
				s.want("shop", desc(key, "ann"), over, 0)
				if code, got := s.operate("/v1/grant", about(key, "ann")+`,"hits":101}`); code != 400 || !strings.Contains(got.Message, "100") {
					t.Errorf("%s: a grant that is too large: got %d %+v", key, code, got)
				}
				if code, got := s.operate("/v1/reset", about(key, "ann")+`}`); code != 200 || got.Changed == 0 {
					t.Errorf("%s: reset: got %d %+v", key, code, got)
				}
				s.remains(key, 10)
			}
		})
	}
}

// TestRulesAreReset: all counters of a rule are reset where the store lists its keys,
// and those of other rules stay.
func TestRulesAreReset(t *testing.T) {
	t.Parallel()
	const users = 30
	for _, store := range stores {
		cells := map[string]int{"fixed_window": users, "sliding_log": users, "gcra": users}
		switch store.name {
		case "memory", "Redis", "Redis cluster":
		case "memcached":
			cells = nil
		default:
			continue
		}
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			settings, _ := store.start(t)
			s := serve(t, adminRules, append(settings, withOperator(t)...)...)
			whole := func(key, more string) (int, operated) {
				return s.operate("/v1/reset", fmt.Sprintf(`{"domain":"shop","rule":"shop.%s","all_matching":true%s}`, key, more))
			}
			if cells == nil {
				if code, got := whole("gcra", ""); code != 501 || got.Code != "UNIMPLEMENTED" || !strings.Contains(got.Message, "cannot scan") {
					t.Errorf("got %d %+v", code, got)
				}
				return
			}
			s.want("shop", costing(3, desc("token_bucket", "ann")), ok, 7)
			for key, want := range cells {
				for i := range users {
					s.want("shop", costing(3, desc(key, fmt.Sprint("user|", i))), ok, 7)
				}
				if code, got := whole(key, `,"dry_run":true`); code != 200 || got.Matched != want || got.Changed != 0 {
					t.Errorf("%s: dry run: got %d %+v, want %d", key, code, got, want)
				}
				s.want("shop", costing(0, desc(key, "user|7")), ok, 7)
				if code, got := whole(key, ""); code != 200 || got.Matched != want || got.Changed != want {
					t.Errorf("%s: got %d %+v, want %d", key, code, got, want)
				}
				for i := range users {
					s.want("shop", costing(0, desc(key, fmt.Sprint("user|", i))), ok, 10)
				}
			}
			s.remains("token_bucket", 7)
		})
	}
}
