package integration

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
)

// Windows begin at the first hit, so that the reset of a new window is known.
// Every subtest has a user of its own, so it has its own counters.
const replyRules = `
domain: edge
descriptors:
  - {key: once, rate_limit: {unit: hour, requests_per_unit: 1, window: from_first_hit}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 5, name: per-a, window: from_first_hit}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 9, name: per-b, window: from_first_hit}}
  - {key: scarce, rate_limit: {unit: day, requests_per_unit: 2, window: from_first_hit}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 9}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 9}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 9}}
  - {key: unlimited, rate_limit: {unlimited: true}}
`

// keyed is a policy that sends the user under a key of the rules.
func keyed(key, fields string) string {
	return "{actions: [{request_headers: {header_name: x-user, descriptor_key: " + key + "}}]" + fields + "}"
}

func policies(keys ...string) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = keyed(key, "")
	}
	return strings.Join(all, ", ")
}

// replies is an Envoy between clients and two services: "silent" adds no headers to
// its answers, "telling" adds all of them.
type replies struct {
	*front
	silent *service
}

func TestConformanceOfReplies(t *testing.T) {
	t.Parallel()
	silent := serve(t, replyRules)
	telling := serve(t, replyRules, "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RETRY_AFTER_HEADER_ENABLED=true",
		"LIMIT_REQUEST_HEADERS_ENABLED=true", "LIMIT_PROBLEM_BODY_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true")
	const draft = patiently + ", enable_x_ratelimit_headers: DRAFT_VERSION_03"
	listener := func(name, service, fields string) frontListener {
		return frontListener{Name: name, Filters: []string{rateLimit(service, draft+fields)}}
	}
	r := &replies{silent: silent, front: startFront(t, map[string]*service{"silent": silent, "telling": telling}, []frontListener{
		listener("front", "silent", ""),
		listener("unavailable", "silent", ", rate_limited_status: {code: ServiceUnavailable}, enable_retry_after_header: true"),
		listener("below-400", "silent", ", rate_limited_status: {code: Accepted}"),
		listener("exhausted", "silent", ", rate_limited_as_resource_exhausted: true"),
		listener("unenforced", "telling", ", filter_enforced: {default_value: {numerator: 0}}"),
		listener("retry", "silent", ", enable_retry_after_header: true"),
		listener("telling", "telling", ", enable_retry_after_header: true"),
	}, []frontRoute{
		limited("/once", policies("once")),
		limited("/two", policies("hour", "day")),
		limited("/long", policies("week", "month", "year")),
		limited("/scarce", policies("day", "scarce", "hour")),
		limited("/unlimited", policies("unlimited", "unmatched")),
		limited("/some", policies("unmatched", "day", "unlimited")),
		limited("/both-over", policies("once", "scarce")),
		limited("/part-off", keyed("hour", ", x_ratelimit_option: 'OFF'")+", "+keyed("scarce", "")),
		limited("/least-off", keyed("hour", "")+", "+keyed("scarce", ", x_ratelimit_option: 'OFF'")),
		limited(healthpb.Health_Check_FullMethodName, policies("once")),
		{"/told", `route: {cluster: upstream, rate_limits: [` + policies("day") + `]}, request_headers_to_add: [` +
			`{header: {key: x-left, value: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:remaining)%"}}]`},
	})}
	t.Run("OVER_LIMIT is answered 429", r.denied)
	t.Run("rate_limited_status", r.status)
	t.Run("gRPC callers", r.grpcCallers)
	t.Run("w of week, month and year", r.longWindows)
	t.Run("the least remaining drives all headers", r.leastRemaining)
	t.Run("no segment without a limit", r.noLimit)
	t.Run("the reset is the duration", r.reset)
	t.Run("response headers", r.responseHeaders)
	t.Run("request headers", r.requestHeaders)
	t.Run("the body of a denial", r.body)
	t.Run("a filter that is not enforced", r.unenforced)
	t.Run("Retry-After", r.retryAfter)
	t.Run("x_ratelimit_option", r.options)
}

func (r *replies) denied(t *testing.T) {
	if a := r.want(t, http.StatusOK, "front", "/once", "x-user: 33"); !strings.Contains(a.body, "X-User: 33") {
		t.Errorf("not the upstream's body: %s", a.body)
	}
	if a := r.want(t, http.StatusTooManyRequests, "front", "/once", "x-user: 33"); a.body != "" || a.header.Get("X-Flags") != "RL" {
		t.Errorf("body %q, flags %q", a.body, a.header.Get("X-Flags"))
	}
	r.want(t, http.StatusOK, "front", "/once", "x-user: 33b")
}

func (r *replies) status(t *testing.T) {
	for listener, want := range map[string]int{"unavailable": http.StatusServiceUnavailable, "below-400": http.StatusTooManyRequests} {
		r.want(t, http.StatusOK, listener, "/once", "x-user: 35"+listener)
		r.want(t, want, listener, "/once", "x-user: 35"+listener)
	}
}

func (r *replies) grpcCallers(t *testing.T) {
	r.want(t, http.StatusOK, "front", "/once", "x-user: 36")
	r.want(t, http.StatusOK, "telling", "/once", "x-user: 36")
	for listener, want := range map[string]codes.Code{"front": codes.Unavailable, "exhausted": codes.ResourceExhausted, "telling": codes.Unavailable} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", "36")
		_, err := healthpb.NewHealthClient(dial(t, r.envoy.Listener(listener), nil)).Check(ctx, &healthpb.HealthCheckRequest{})
		if got := grpcstatus.Code(err); got != want {
			t.Errorf("%s: %v, want %v: %v", listener, got, want, err)
		}
		if message := grpcstatus.Convert(err).Message(); strings.Contains(message, "quota-exceeded") != (listener == "telling") {
			t.Errorf("%s: message %q", listener, message)
		}
	}
}

func (r *replies) longWindows(t *testing.T) {
	r.want(t, http.StatusOK, "front", "/long", "x-user: 38").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "9, 9;w=604800, 9;w=2592000, 9;w=31536000",
	})
}

const inADay = `8639\d|86400`

func (r *replies) leastRemaining(t *testing.T) {
	r.want(t, http.StatusOK, "front", "/scarce", "x-user: 39").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit":     `2, 9;w=86400;name="per-b", 2;w=86400, 5;w=3600;name="per-a"`,
		"X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": inADay,
	})
	r.want(t, http.StatusOK, "front", "/two", "x-user: 39b").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "5, .*", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": inAnHour,
	})
}

func (r *replies) noLimit(t *testing.T) {
	r.want(t, http.StatusOK, "front", "/unlimited", "x-user: 40").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "", "X-Ratelimit-Remaining": "", "X-Ratelimit-Reset": "",
	})
	r.want(t, http.StatusOK, "front", "/some", "x-user: 40").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": `9, 9;w=86400;name="per-b"`, "X-Ratelimit-Remaining": "8", "X-Ratelimit-Reset": inADay,
	})
}

func (r *replies) reset(t *testing.T) {
	look := func() int64 {
		return r.silent.in(t).hit("edge", costing(0, desc("once", "41"))).GetDurationUntilReset().GetSeconds()
	}
	r.want(t, http.StatusOK, "front", "/once", "x-user: 41")
	before := look()
	a := r.want(t, http.StatusTooManyRequests, "front", "/once", "x-user: 41")
	after := look()
	if got, err := strconv.ParseInt(a.header.Get("X-Ratelimit-Reset"), 10, 64); err != nil || got > before || got < after {
		t.Errorf("the header says %d (%v), the service %d before and %d after", got, err, before, after)
	}
}

func (r *replies) responseHeaders(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusTooManyRequests} {
		r.want(t, code, "telling", "/once", "x-user: 42").wantHeaders(t, map[string]string{
			"Ratelimit-Limit": "1", "Ratelimit-Remaining": "0", "Ratelimit-Reset": inAnHour,
		})
	}
	// Headers of the upstream's answer stay.
	a := r.want(t, http.StatusOK, "telling", "/once", "x-user: 42b", "answer-ratelimit-limit: 77")
	if got := a.header.Values("Ratelimit-Limit"); !slices.Equal(got, []string{"77", "1"}) {
		t.Errorf("with the upstream's own header: %q", got)
	}
}

// requestHeaders: the upstream gets the headers that the service adds to requests
// and the headers that Envoy makes of the metadata, and none if the setting is off.
func (r *replies) requestHeaders(t *testing.T) {
	a := r.want(t, http.StatusOK, "telling", "/told", "x-user: 43", "x-other: kept")
	for _, want := range []string{"Ratelimit-Limit: 9\r\n", "Ratelimit-Remaining: 8\r\n", "X-Left: 8\r\n", "X-Other: kept\r\n"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %q reached the upstream:\n%s", want, a.body)
		}
	}
	a = r.want(t, http.StatusOK, "front", "/told", "x-user: 43")
	if found := regexp.MustCompile(`(?im)^(x-)?ratelimit.*`).FindString(a.body); found != "" {
		t.Errorf("the upstream got %q", found)
	}
}

func (r *replies) body(t *testing.T) {
	r.want(t, http.StatusOK, "telling", "/once", "x-user: 44").wantHeaders(t, map[string]string{"Content-Type": "text/plain.*"})
	a := r.want(t, http.StatusTooManyRequests, "telling", "/once", "x-user: 44")
	a.wantHeaders(t, map[string]string{"Content-Type": `application/problem\+json`})
	if !strings.Contains(a.body, "quota-exceeded") {
		t.Errorf("body %q", a.body)
	}
}

func (r *replies) unenforced(t *testing.T) {
	r.want(t, http.StatusOK, "unenforced", "/once", "x-user: 46")
	r.want(t, http.StatusOK, "unenforced", "/once", "x-user: 46").wantHeaders(t, map[string]string{
		"X-Envoy-Ratelimited": "true", "X-Ratelimit-Limit": "1, 1;w=3600", "X-Ratelimit-Remaining": "0", "Ratelimit-Remaining": "0",
	})
}

func (r *replies) retryAfter(t *testing.T) {
	for range 2 {
		r.want(t, http.StatusOK, "retry", "/scarce", "x-user: 48").wantHeaders(t, map[string]string{"Retry-After": ""})
	}
	// The longest wait of the limits that deny.
	r.want(t, http.StatusTooManyRequests, "retry", "/both-over", "x-user: 48").wantHeaders(t, map[string]string{"Retry-After": inADay})
	r.want(t, http.StatusTooManyRequests, "retry", "/once", "x-user: 48").wantHeaders(t, map[string]string{"Retry-After": inAnHour})
	r.want(t, http.StatusTooManyRequests, "front", "/once", "x-user: 48").wantHeaders(t, map[string]string{"Retry-After": ""})
	r.want(t, http.StatusServiceUnavailable, "unavailable", "/once", "x-user: 48").wantHeaders(t, map[string]string{"Retry-After": ""})
	// There is one Retry-After, the service's.
	r.want(t, http.StatusOK, "telling", "/once", "x-user: 48b")
	r.want(t, http.StatusTooManyRequests, "telling", "/once", "x-user: 48b").wantHeaders(t, map[string]string{"Retry-After": inAnHour})
}

func (r *replies) options(t *testing.T) {
	r.want(t, http.StatusOK, "front", "/part-off", "x-user: 49").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "2, 2;w=86400", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": inADay,
	})
	r.want(t, http.StatusOK, "front", "/least-off", "x-user: 49b").wantHeaders(t, map[string]string{
		"X-Ratelimit-Limit": "", "X-Ratelimit-Remaining": "", "X-Ratelimit-Reset": "",
	})
}
