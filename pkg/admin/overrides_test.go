package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/top"
)

const manyWindows = `domain: shop
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 10}}
- {key: path, value: "/a/*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}
- key: both
  rate_limits:
  - {name: per-minute, unit: minute, requests_per_unit: 10}
  - {unit: day, requests_per_unit: 1000}
`

// eachStore runs a test on stores of several kinds, with a process that counts heavy hitters.
func eachStore(t *testing.T, test func(*rig)) {
	for name, open := range map[string]func(*testing.T) backends.Store{
		"memory": func(t *testing.T) backends.Store { return newStore(t) },
		"redis": func(t *testing.T) backends.Store {
			store, err := redis.Open(redis.Options{URL: testenv.Redis(t).Addr, Timeout: 20 * time.Second, Watch: &breaker.Watch{Slow: 20 * time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return store
		},
	} {
		t.Run(name, func(t *testing.T) {
			test(start(t, listening{change: func(o *admin.Options) {
				counted := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
				o.Limits, o.Top = newLimits(t, open(t), manyWindows, counted), counted
			}}))
		})
	}
}

// asks sends a request of one entry as Envoy would, with a limit unless it is "", and reports
// whether it passes.
func (r *rig) asks(key, value, limit string) bool {
	r.t.Helper()
	asked := service.Descriptor{Entries: []descriptors.Entry{{Key: key, Value: value}}}
	if limit != "" {
		rate, err := descriptors.ParseLimit(limit)
		if err != nil {
			r.t.Fatal(err)
		}
		asked.Limit = &rate
	}
	o, err := r.limits.Evaluate(r.t.Context(), &service.Request{Domain: "shop", Descriptors: []service.Descriptor{asked}})
	if err != nil {
		r.t.Fatal(err)
	}
	return !o.Over
}

// one is the body of a request of one entry, without its end. limit is a field of the
// descriptor, or "".
func one(key, value, limit string) string {
	return fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":"%s","value":"%s"}]%s}]`, key, value, limit)
}

// looked is the only descriptor of the answer of a path, and its only limit.
func (r *rig) looked(path, body string) (descriptor, limit map[string]any) {
	r.t.Helper()
	got := r.ask("POST", path, body+"}", bearer(readToken))
	if got.code != 200 {
		r.t.Fatalf("%s: got %d %s", path, got.code, got.text)
	}
	descriptor = got.json["descriptors"].([]any)[0].(map[string]any)
	return descriptor, descriptor["limits"].([]any)[0].(map[string]any)
}

// The counter that decides is the one of the limit that the last request brought: it is shown,
// reset and granted hits.
func TestTheLimitOfTheLastRequestIsTheOneThatDecides(t *testing.T) {
	eachStore(t, func(r *rig) {
		ann := one("user", "ann", "")
		for range 10 {
			r.asks("user", "ann", "")
		}
		for r.asks("user", "ann", "5/2*hour") {
		}
		for _, path := range []string{"/v1/get", "/v1/explain"} {
			descriptor, limit := r.looked(path, ann)
			override, _ := descriptor["override"].(map[string]any)
			at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(override["seen"]))
			if err != nil || time.Since(at) > time.Minute || override["requests_per_unit"] != 5.0 || override["unit"] != "HOUR" || override["unit_multiplier"] != 2.0 {
				t.Errorf("%s: the override is %v", path, override)
			}
			if limit["limit"] != 5.0 || limit["window"] != "7200s" || limit["remaining"] != 0.0 || !strings.Contains(limit["key"].(string), "|2h|") {
				t.Errorf("%s: got %v", path, limit)
			}
		}
		if got := r.ask("POST", "/v1/grant", ann+`,"hits":2}`, bearer(writeToken)); got.code != 200 || !strings.Contains(got.text, `"rule":"shop.user"`) || !strings.Contains(got.text, `"remaining":2}`) {
			t.Errorf("grant: got %d %s", got.code, got.text)
		}
		if got := r.ask("POST", "/v1/grant", ann+`,"hits":51}`, bearer(writeToken)); got.code != 400 || !strings.Contains(got.text, "at most 50 (10 times the limit of 5)") {
			t.Errorf("a grant beyond the override's bound: got %d %s", got.code, got.text)
		}
		if got := r.ask("POST", "/v1/reset", ann+"}", bearer(writeToken)); got.code != 200 || !strings.Contains(got.text, `"after":{"count":0,"remaining":5}`) {
			t.Errorf("reset: got %d %s", got.code, got.text)
		}
		if !r.asks("user", "ann", "5/2*hour") {
			t.Error("denied after the reset")
		}
		if _, limit := r.looked("/v1/get", one("user", "bob", "")); limit["limit"] != 10.0 {
			t.Errorf("another caller: got %v", limit)
		}

		// A request without a limit: the rule's counts again, of which nothing was reset.
		r.asks("user", "ann", "")
		if descriptor, limit := r.looked("/v1/get", ann); descriptor["override"] != nil || limit["limit"] != 10.0 || limit["remaining"] != 0.0 {
			t.Errorf("after a request without a limit: got %v", descriptor)
		}
	})
}

// A limit of the question stands before what the process remembers.
func TestTheLimitOfTheQuestionIsAskedAbout(t *testing.T) {
	eachStore(t, func(r *rig) {
		for range 3 {
			r.asks("user", "ann", "5/hour")
		}
		r.asks("user", "ann", "7/day")
		descriptor, limit := r.looked("/v1/get", one("user", "ann", `,"limit":{"requests_per_unit":5,"unit":"hour"}`))
		if fmt.Sprint(descriptor["override"]) != "map[requests_per_unit:5 unit:HOUR]" || limit["remaining"] != 2.0 {
			t.Errorf("got %v", descriptor)
		}
	})
}

// Values that share a counter do not share the limit that a request brings along.
func TestTheLimitOfTheLastRequestBesideASharedCounter(t *testing.T) {
	eachStore(t, func(r *rig) {
		r.asks("path", "/a/1", "5/hour")
		r.asks("path", "/a/2", "")
		if descriptor, limit := r.looked("/v1/get", one("path", "/a/1", "")); descriptor["override"] == nil || limit["remaining"] != 4.0 {
			t.Errorf("got %v", descriptor)
		}
		if descriptor, limit := r.looked("/v1/get", one("path", "/a/2", "")); descriptor["override"] != nil || limit["remaining"] != 9.0 {
			t.Errorf("got %v", descriptor)
		}
		r.asks("path", "/a/1", "")
		if descriptor, limit := r.looked("/v1/get", one("path", "/a/1", "")); descriptor["override"] != nil || limit["remaining"] != 8.0 {
			t.Errorf("got %v", descriptor)
		}
	})
}
