package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/denials"
)

// denied is the answer to a question about denials.
func (s *service) denied(query string) (l denials.List) {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+s.addrs["admin"]+"/v1/denials"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	response, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&l); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %v, %v", query, response.Status, err)
	}
	return l
}

// TestDenialsAreRemembered: a process knows whom the store, the local cache and a policy
// denied. With CACHE_KEY_HASH it knows the hash of a value, as the key in the store has it.
func TestDenialsAreRemembered(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t).Addr
	relay := testenv.NewRelay(t, server)
	settings := append(redisAt(relay.Addr), "LOG_DENIALS=first", "LOCAL_CACHE_SIZE_IN_BYTES=1000000",
		"CACHE_KEY_HASH=true", "CACHE_KEY_HASH_SECRET=sixteen bytes or more")
	s := serve(t, "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: year, requests_per_unit: 1, on_error: deny}}\n", append(settings, withOperator(t)...)...)
	s.want("shop", desc("user", "alice"), ok, 0)
	for range 3 {
		s.want("shop", desc("user", "alice"), over, 0)
	}
	l := s.denied("?rule=shop.user&since=1m")
	if len(l.Denials) != 3 || l.Kept != 3 || l.From == nil {
		t.Fatalf("got %+v, want 3 denials", l)
	}
	d := l.Denials[0]
	if d.Limit != 1 || d.Policy != "counted" || time.Duration(d.RetryAfter) <= 0 || time.Since(d.Time) > time.Minute || d.Shadow {
		t.Errorf("got %+v", d)
	}
	for key := range keysOf(t, server) {
		if strings.HasPrefix(key, "rls:") {
			continue
		}
		if len(d.Entries) != 1 || !strings.Contains(key, "user="+d.Entries[0].Value+"|") {
			t.Errorf("got %v for the key %s", d.Entries, key)
		}
	}

	relay.Freeze()
	if got := s.hit("shop", desc("user", "bob")); got.Code != over {
		t.Errorf("without a store: got %v", got.Code)
	}
	if d := s.denied("?n=1").Denials[0]; d.Policy != "deny" {
		t.Errorf("without a store: got %+v", d)
	}
	if log := s.log.String(); strings.Count(log, `"@message":"denied"`) != 2 || strings.Contains(log, "alice") {
		t.Errorf("want a line for each user, without a name:\n%s", log)
	}
}
