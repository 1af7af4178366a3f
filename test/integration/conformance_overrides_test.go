package integration

import (
	"encoding/base64"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const overrideRules = `
domain: edge
descriptors:
  - {key: once, rate_limit: {unit: hour, requests_per_unit: 1, name: rule}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`

// limitHeader is a header that Envoy turns into the metadata caller:limit.
func limitHeader(t *testing.T, fields map[string]any) string {
	t.Helper()
	value, err := structpb.NewValue(fields)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return "x-limit: " + base64.StdEncoding.EncodeToString(encoded)
}

// TestConformanceOfOverrides: limits that come with a request, from dynamic
// metadata and from Envoy's own configuration.
func TestConformanceOfOverrides(t *testing.T) {
	t.Parallel()
	s := serve(t, overrideRules)
	const (
		fromMetadata = ", limit: {dynamic_metadata: {metadata_key: {key: caller, path: [{key: limit}]}}}"
		fixedTwo     = ", limit: {rate_limit: {requests_per_unit: 2, unit: HOUR}}"
		noUnit       = ", limit: {rate_limit: {requests_per_unit: 2}}"
	)
	f := startFront(t, map[string]*service{"rls": s}, []frontListener{{Name: "front", Filters: []string{
		headerToMetadata("request_rules: [{header: x-limit, on_header_present: {metadata_namespace: caller, key: limit, type: PROTOBUF_VALUE, encode: BASE64}}]"),
		rateLimit("rls", patiently+", enable_x_ratelimit_headers: DRAFT_VERSION_03"),
	}}}, []frontRoute{
		limited("/once", keyed("once", fromMetadata)),
		limited("/shadow", keyed("shadow", fromMetadata)),
		limited("/unmatched", keyed("unmatched", fromMetadata)),
		perFilter("/fixed", "rate_limits: ["+keyed("once", fixedTwo)+"]"),
		perFilter("/no-unit", "rate_limits: ["+keyed("once", noUnit)+"]"),
	})
	// passes wants n requests to pass and the next one to be denied.
	passes := func(t *testing.T, n int, limit, path string, headers ...string) {
		t.Helper()
		for range n {
			f.want(t, http.StatusOK, "front", path, headers...).wantHeaders(t, map[string]string{"X-Ratelimit-Limit": limit})
		}
		f.want(t, http.StatusTooManyRequests, "front", path, headers...).wantHeaders(t, map[string]string{"X-Ratelimit-Limit": limit})
	}
	three := limitHeader(t, map[string]any{"requests_per_unit": 3, "unit": "DAY"})

	t.Run("none in the metadata", func(t *testing.T) {
		passes(t, 1, `1, 1;w=3600;name="rule"`, "/once", "x-user: none")
		f.want(t, http.StatusOK, "front", "/unmatched", "x-user: none").wantHeaders(t, map[string]string{"X-Ratelimit-Limit": ""})
	})
	t.Run("from metadata, beats the rule", func(t *testing.T) {
		passes(t, 3, "3, 3;w=86400", "/once", "x-user: a", three)
	})
	t.Run("from metadata, beats shadow mode", func(t *testing.T) {
		passes(t, 3, "3, 3;w=86400", "/shadow", "x-user: a", three)
	})
	t.Run("from metadata, without a rule", func(t *testing.T) {
		passes(t, 3, "3, 3;w=86400", "/unmatched", "x-user: a", three)
	})
	t.Run("from metadata, counts on with the rule's counter", func(t *testing.T) {
		f.want(t, http.StatusOK, "front", "/once", "x-user: b")
		passes(t, 1, "2, 2;w=3600", "/once", "x-user: b", limitHeader(t, map[string]any{"requests_per_unit": 2, "unit": "HOUR"}))
	})
	t.Run("from metadata, of nothing", func(t *testing.T) {
		passes(t, 0, "0, 0;w=3600", "/once", "x-user: c", limitHeader(t, map[string]any{"requests_per_unit": 0, "unit": "HOUR"}))
	})
	t.Run("fixed in the route, beats the rule", func(t *testing.T) {
		passes(t, 2, "2, 2;w=3600", "/fixed", "x-user: d")
	})
	t.Run("without a unit, refused", func(t *testing.T) {
		f.want(t, http.StatusInternalServerError, "front", "/no-unit", "x-user: e").wantHeaders(t, map[string]string{"X-Flags": "RLSE"})
		if got := s.in(t).stat(`rls_requests_total{code="InvalidArgument"}`); got != 1 {
			t.Errorf("%v requests were invalid, want 1", got)
		}
		passes(t, 1, `1, 1;w=3600;name="rule"`, "/once", "x-user: e")
	})
}
