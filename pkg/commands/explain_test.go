package commands

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/process"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/settings"
)

// explained has every strategy, limits per second, several limits and wildcards that
// share a counter.
const patience = 20 * time.Second // the machine may be busy

const explained = `domain: d
descriptors:
- {key: fixed, rate_limit: {unit: week, requests_per_unit: 9}}
- {key: second, rate_limit: {unit: second, requests_per_unit: 9}}
- {key: seconds, rate_limit: {unit: second, unit_multiplier: 90, requests_per_unit: 9}}
- {key: first, rate_limit: {unit: week, requests_per_unit: 9, window: from_first_hit}}
- {key: calendar, rate_limit: {unit: month, requests_per_unit: 9, window: calendar, timezone: Europe/Berlin}}
- {key: owed, rate_limit: {unit: month, requests_per_unit: 9, window: calendar, timezone: Europe/Berlin, overdraft: true}}
- {key: extended, rate_limit: {unit: week, requests_per_unit: 9, window: from_first_hit, extend: true}}
- {key: sliding, rate_limit: {unit: week, requests_per_unit: 9, strategy: sliding_window}}
- {key: log, rate_limit: {unit: week, requests_per_unit: 9, strategy: sliding_log}}
- {key: bucket, rate_limit: {unit: week, requests_per_unit: 9, strategy: token_bucket}}
- {key: gcra, rate_limit: {unit: week, requests_per_unit: 9, strategy: gcra}}
- {key: leaky, rate_limit: {unit: week, requests_per_unit: 9, strategy: leaky_bucket}}
- {key: leased, rate_limit: {unit: week, requests_per_unit: 90, lease: true}}
- {key: default, rate_limit: {unit: week, requests_per_unit: 9}}
- {key: "shared", value: "*", share_threshold: true, rate_limit: {unit: week, requests_per_unit: 9}}
- key: several
  rate_limits: [{unit: week, requests_per_unit: 9}, {unit: year, requests_per_unit: 9, strategy: gcra}, {unit: year, requests_per_unit: 9, strategy: sliding_window}]
- {key: outer, descriptors: [{key: inner, rate_limit: {unit: week, requests_per_unit: 9}}]}
`

// explainedDescriptors are arguments of --descriptor for each of the rules, with
// values that keys escape, and that stores shorten.
func explainedDescriptors() []string {
	long, nearly := strings.Repeat("x", 3000), strings.Repeat("y", 230)
	list := []string{"outer=a,inner=b", `{"fixed": "a b|c%=*{}\u0001é"}`, "fixed=" + long, "sliding=" + long, "several=" + long, "fixed=" + nearly, "sliding=" + nearly}
	for _, key := range []string{"fixed", "second", "seconds", "first", "calendar", "owed", "extended", "sliding", "log", "bucket", "gcra", "leaky", "leased", "default", "shared", "several"} {
		list = append(list, key+"=ann")
	}
	return list
}

// keySettings are variables that change keys.
var keySettings = map[string][]string{
	"plain":          nil,
	"prefix":         {"--cache-key-prefix=team a:"},
	"hash":           {"--cache-key-hash", "--cache-key-hash-secret=0123456789abcdef"},
	"ratelimit keys": {"--cache-key-format=ratelimit"},
	"default":        {"--default-strategy=gcra", "--default-burst=3"},
}

// TestExplainedKeysAreThoseInTheStore hits each rule once, as serve would with the
// same settings, and compares the keys in the store with the explanation.
func TestExplainedKeysAreThoseInTheStore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "d.yaml")
	if err := os.WriteFile(file, []byte(explained), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("redis", func(t *testing.T) {
		server := testenv.Redis(t)
		store, err := redis.Open(redis.Options{URL: server.Addr, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
		defer client.Close()
		for name, flags := range keySettings {
			t.Run(name, func(t *testing.T) {
				compareKeys(t, store, append([]string{"explain", file, "--backend-type=redis"}, flags...), func(t *testing.T, want []string) {
					got, err := client.Keys(t.Context(), "*").Result()
					if err != nil || !sameElements(got, want) {
						t.Errorf("the store has %q, the explanation %q (%v)", got, want, err)
					}
				}, func() { client.FlushAll(t.Context()) })
			})
		}
	})
	t.Run("memcached", func(t *testing.T) {
		server := testenv.Memcached(t)
		store, err := memcached.Open(memcached.Options{Servers: []string{server.Addr}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		client := memcache.New(server.Addr)
		for _, name := range []string{"plain", "prefix", "hash"} {
			t.Run(name, func(t *testing.T) {
				compareKeys(t, store, append([]string{"explain", file, "--backend-type=memcache"}, keySettings[name]...), func(t *testing.T, want []string) {
					for _, key := range want {
						if _, err := client.Get(key); err != nil {
							t.Errorf("the store does not have %q: %v", key, err)
						}
					}
				}, func() {})
			})
		}
	})
}

// compareKeys calls check with the keys of the explanation of each descriptor, after
// a hit of it. Then it calls clean.
func compareKeys(t *testing.T, store backends.Store, args []string, check func(*testing.T, []string), clean func()) {
	for _, descriptor := range explainedDescriptors() {
		c := parseExplain(t, append(args, "--domain=d", "--descriptor="+descriptor))
		limits, err := c.service(settings.NewDecoder(), store)
		if err != nil {
			t.Fatal(err)
		}
		request := requestOf(t, c)
		// The window may end between the hit and the explanation.
		for {
			clean()
			before := explainedKeys(t, c)
			if _, err := limits.Evaluate(t.Context(), &request.Request); err != nil {
				t.Fatal(err)
			}
			if after := explainedKeys(t, c); sameElements(before, after) {
				check(t, after)
				break
			}
		}
		clean()
	}
}

func parseExplain(t *testing.T, args []string) *explainCmd {
	t.Helper()
	parser, args := newProgram("rls", process.Serve()).Parser(t.Context(), args)
	ctx, err := parser.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return ctx.Selected().Target.Addr().Interface().(*explainCmd)
}

func requestOf(t *testing.T, c *explainCmd) *operate.Question {
	t.Helper()
	request, err := c.request()
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func explainedKeys(t *testing.T, c *explainCmd) (keys []string) {
	t.Helper()
	doc, err := c.explain(t.Context(), settings.NewDecoder(), requestOf(t, c))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range doc.Descriptors {
		for _, l := range d.Limits {
			keys = append(keys, l.Key)
		}
	}
	if len(keys) == 0 {
		t.Fatalf("no limit in %+v", doc)
	}
	return keys
}

func sameElements(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// TestExplainShippedRules explains requests by the rules that ship.
func TestExplainShippedRules(t *testing.T) {
	for _, c := range []struct{ domain, descriptor, rule string }{
		{"quickstart", "generic_key=hello", "quickstart.generic_key_hello"},
		{"nested", "plan=free,path=/export", "nested.plan_free.path_/export"},
		{"nested", "plan=gold,user=ann", "nested.plan.user"},
		{"nested", "plan=gold,path=/export", ""},
		{"wildcards", "path=/static/a.js", "wildcards.path_/static/*"},
		{"several-limits", "api_key=a", "several-limits.api_key"},
		{"charge", "tenant=a", "charge.tenant"},
		{"metrics", "region=eu,user=ann", "metrics.region.user"},
		{"modes", "tokens=1", "modes.tokens"},
		{"first-hit", "pin=1", "first-hit.pin"},
		{"lease", "api=1", "lease.api"},
		{"failure", "login=ann", "failure.login"},
		{"failure", "none=1", ""},
	} {
		e := parseExplain(t, []string{"explain", "../../config", "--domain=" + c.domain, "--descriptor=" + c.descriptor})
		doc, err := e.explain(t.Context(), settings.NewDecoder(), requestOf(t, e))
		if err != nil {
			t.Fatal(err)
		}
		d := doc.Descriptors[0]
		if d.Rule != c.rule || (d.Why == "") != (c.rule != "") || (len(d.Limits) > 0) != (c.rule != "") || len(d.Path) == 0 && c.rule != "" {
			t.Errorf("%s %s: %+v", c.domain, c.descriptor, d)
		}
		for _, s := range d.Path {
			if want := "../../config/" + c.domain + ".yaml"; s.File != want || s.Line < 1 {
				t.Errorf("%s %s: the place is %s:%d, want a line of %s", c.domain, c.descriptor, s.File, s.Line, want)
			}
		}
	}
}
