package integration

import (
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

const edgeRules = `
domain: edge
pools: {spare: {unit: year, requests_per_unit: 20}}
descriptors:
  - {key: lent, rate_limit: {unit: year, requests_per_unit: 1, borrow_from: spare}}
  - {key: few, rate_limits: [{unit: year, requests_per_unit: 3}, {unit: day, requests_per_unit: 9, shadow_mode: true, thresholds: [{at: 20%, response_headers: {x-quota-warning: "20"}}]}]}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 3, name: per-a, strategy: sliding_log}}
  - {key: day, rate_limit: {unit: year, requests_per_unit: 9, name: per-b}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1, name: candidate}}
  - {key: enforced, rate_limit: {unit: year, requests_per_unit: 100, name: enforced}}
  - {key: ten-minutes, rate_limit: {unit: minute, unit_multiplier: 10, requests_per_unit: 5, strategy: sliding_log}}
  - {key: queue, rate_limit: {unit: second, requests_per_unit: 2, strategy: leaky_bucket, max_delay: 1s}}
  - key: warned
    rate_limit: {unit: year, requests_per_unit: 4, thresholds: [{at: 50%, response_headers: {x-quota-warning: "50"}}, {at: 75%, headers: {x-suspicious: captcha}, response_headers: {x-quota-warning: "75"}, metadata: {captcha: true}, delay: 300ms}]}
  - key: nothing
    metadata: {owner: team-edge}
    rate_limit: {unit: year, requests_per_unit: 0, name: none}
`

// edge is an Envoy with a listener for each of two services: "draft" adds Envoy's own
// X-RateLimit-*, "plain" leaves headers to the service.
type edge struct{ *front }

func TestBehindEnvoy(t *testing.T) {
	t.Parallel()
	draft := serve(t, edgeRules, "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_IETF_HEADERS_ENABLED=true",
		"LIMIT_RETRY_AFTER_HEADER_ENABLED=true", "LIMIT_PROBLEM_BODY_ENABLED=true")
	plain := serve(t, edgeRules, "LIMIT_X_RATELIMIT_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true", "LOG_THRESHOLDS=true")
	e := edge{startFront(t, map[string]*service{"draft": draft, "plain": plain}, []frontListener{
		{Name: "draft", Filters: []string{rateLimit("draft", patiently+", enable_x_ratelimit_headers: DRAFT_VERSION_03")}},
		{Name: "plain", Filters: []string{rateLimit("plain", patiently)}},
	}, []frontRoute{
		limited("/two", always("log", "day")),
		limited("/shadow", always("shadow", "enforced")),
		limited("/ten-minutes", always("ten-minutes")),
		limited("/queue", always("queue")),
		limited("/nothing", always("nothing")),
		limited("/warned", always("warned")),
		limited("/lent", always("lent", "few")),
	})}
	t.Run("clients get 200 and then 429 with headers", e.headers)
	t.Run("X-RateLimit with the epoch", e.epoch)
	t.Run("a shadow rule shows in Envoy's headers only", e.shadow)
	t.Run("unit_multiplier widens the window", e.multiplier)
	t.Run("a queue holds the answer", e.queue)
	t.Run("dynamic metadata", e.metadata)
	t.Run("pools", e.pools)
	t.Run("thresholds", func(t *testing.T) { e.thresholds(t, plain) })
}

// always is policies that send the same value of each key.
func always(keys ...string) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = actions("{generic_key: {descriptor_key: " + key + ", descriptor_value: all}}")
	}
	return strings.Join(all, ", ")
}

func (e edge) headers(t *testing.T) {
	const policy = `3, 3;w=3600;name="per-a", 9;w=31536000;name="per-b"`
	for left := 2; left >= 0; left-- {
		remaining := strconv.Itoa(left)
		e.want(t, http.StatusOK, "draft", "/two").wantHeaders(t, map[string]string{
			"X-Ratelimit-Limit": regexp.QuoteMeta(policy), "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": inAnHour,
			"Ratelimit-Limit": "3", "Ratelimit-Remaining": remaining, "Ratelimit-Reset": inAnHour,
			"Ratelimit-Policy": `"per-a";q=3;w=3600, "per-b";q=9;w=31536000`,
			"Ratelimit":        `"per-a";r=` + remaining + `;t=(` + inAnHour + `)`,
			"Retry-After":      "", "X-Envoy-Ratelimited": "",
		})
	}
	a := e.want(t, http.StatusTooManyRequests, "draft", "/two")
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

func (e edge) epoch(t *testing.T) {
	a := e.want(t, http.StatusOK, "plain", "/two")
	a.wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": `\d{10}`,
		"Ratelimit-Limit": "", "Ratelimit": "", "Ratelimit-Policy": "",
	})
	at, err := strconv.ParseInt(a.header.Get("X-Ratelimit-Reset"), 10, 64)
	if left := time.Until(time.Unix(at, 0)); err != nil || left < 59*time.Minute || left > time.Hour+2*time.Second {
		t.Errorf("the quota is back in %v", left)
	}
}

func (e edge) shadow(t *testing.T) {
	for left := 99; left > 96; left-- {
		remaining := strconv.Itoa(left)
		e.want(t, http.StatusOK, "draft", "/shadow").wantHeaders(t, map[string]string{
			"X-Ratelimit-Limit": `1, 1;w=31536000;name="candidate", 100;w=31536000;name="enforced"`, "X-Ratelimit-Remaining": "0",
			"Ratelimit-Limit": "100", "Ratelimit-Remaining": remaining,
			"Ratelimit-Policy": `"enforced";q=100;w=31536000`,
			"Ratelimit":        `"enforced";r=` + remaining + `;t=\d+`,
			"Retry-After":      "", "X-Envoy-Ratelimited": "",
		})
	}
}

func (e edge) multiplier(t *testing.T) {
	e.want(t, http.StatusOK, "draft", "/ten-minutes").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "5, 5;w=600", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "599|600",
		"Ratelimit-Policy": `"5-per-600s";q=5;w=600`, "Ratelimit": `"5-per-600s";r=4;t=(599|600)`,
	})
}

func (e edge) metadata(t *testing.T) {
	a := e.want(t, http.StatusTooManyRequests, "plain", "/nothing")
	var got map[string]any
	if err := json.Unmarshal([]byte(a.header.Get("X-Metadata")), &got); err != nil {
		t.Fatalf("%v in %v", err, a.header)
	}
	retry, _ := got["retry_after"].(float64)
	delete(got, "retry_after")
	want := map[string]any{
		"domain": "edge", "rule": "none", "strategy": "fixed_window", "limit": 0.0, "remaining": 0.0,
		"descriptors": []any{map[string]any{"entries": []any{"nothing=all"}}},
	}
	if a.header.Get("X-Flags") != "RL" || retry < 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("flags %s, metadata %v, retry after %v, want %v", a.header.Get("X-Flags"), got, retry, want)
	}
}

// queue: two requests a second pass, each in its turn. A request whose turn comes
// in more than a second is denied.
func (e edge) queue(t *testing.T) {
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

// pools: Envoy has in its metadata that a hit is borrowed, and the threshold of a watched limit,
// of which the client sees nothing.
func (e edge) pools(t *testing.T) {
	for i, want := range []map[string]any{
		{"rule": "edge.lent", "borrowed": nil, "thresholds": nil},
		{"rule": "edge.few", "borrowed": true, "thresholds": []any{map[string]any{"rule": "edge.few", "at": "20%"}}},
	} {
		a := e.want(t, http.StatusOK, "plain", "/lent")
		a.wantHeaders(t, map[string]string{"X-Quota-Warning": ""})
		var got map[string]any
		if err := json.Unmarshal([]byte(a.header.Get("X-Metadata")), &got); err != nil {
			t.Fatalf("%v in %v", err, a.header)
		}
		for name, value := range want {
			if !reflect.DeepEqual(got[name], value) {
				t.Errorf("request %d: %s is %v, want %v", i, name, got[name], value)
			}
		}
	}
}

// thresholds: a warning for the client, then a header for the upstream, metadata and a delay,
// all before the first denial.
func (e edge) thresholds(t *testing.T, s *service) {
	suspicious := func(a answer) bool { return strings.Contains(a.body, "X-Suspicious: captcha\r\n") }
	for i, warning := range []string{"", "50", "75", "75"} {
		start := time.Now()
		a := e.want(t, http.StatusOK, "plain", "/warned")
		took := time.Since(start)
		a.wantHeaders(t, map[string]string{"X-Quota-Warning": warning, "X-Suspicious": ""})
		var got struct{ Thresholds []map[string]any }
		if err := json.Unmarshal([]byte(a.header.Get("X-Metadata")), &got); err != nil {
			t.Fatalf("%v in %v", err, a.header)
		}
		var want []map[string]any
		switch warning {
		case "50":
			want = []map[string]any{{"rule": "edge.warned", "at": "50%"}}
		case "75":
			want = []map[string]any{{"rule": "edge.warned", "at": "75%", "captcha": true}}
		}
		if !reflect.DeepEqual(got.Thresholds, want) || suspicious(a) != (warning == "75") || warning == "75" && took < 300*time.Millisecond {
			t.Errorf("request %d: metadata %v, want %v; took %v; %s", i, got.Thresholds, want, took, a.body)
		}
	}
	e.want(t, http.StatusTooManyRequests, "plain", "/warned").wantHeaders(t, map[string]string{"X-Quota-Warning": ""})
	for at, want := range map[string]float64{"50%": 1, "75%": 2} {
		if n := s.stat(`rls_threshold_reached_total{at="` + at + `",rule="edge.warned"}`); n != want {
			t.Errorf("%s was counted %v times, want %v", at, n, want)
		}
		line := `"rule":"edge.warned","limit":"fixed_window 4 per 365 days","at":"` + at + `"`
		testenv.Eventually(t, patience, func() bool { return len(s.log.With(line)) == 1 }, "one line about "+at)
	}
}
