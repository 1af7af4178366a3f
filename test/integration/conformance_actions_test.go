package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// action is a route, and the descriptors that Envoy sends for requests to it.
type action struct {
	name string
	// policies of the route or, where they are empty, the whole route.
	policies, route string
	asks            []ask
}

// ask is a request, and the descriptors that reach the service, "(key=value, …)" each.
type ask struct {
	query, header string
	listener      string // "" is "front"
	want          string // noCheck: the service is not asked
}

const noCheck = "no check"

func actions(a ...string) string { return "{actions: [" + strings.Join(a, ", ") + "]}" }

// fixed is an action that gives an entry to every request.
const fixed = "{generic_key: {descriptor_key: fixed, descriptor_value: x}}"

func userHeader(fields string) string {
	return "{request_headers: {header_name: x-user, descriptor_key: user" + fields + "}}"
}

func planMetadata(fields string) string {
	return "{metadata: {descriptor_key: plan, metadata_key: {key: caller, path: [{key: plan}]}" + fields + "}}"
}

func cel(text, fields string) string {
	return `{extension: {name: envoy.rate_limit_descriptors.expr, typed_config: {"@type": ` +
		`type.googleapis.com/envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor, descriptor_key: cel, text: "` + text + `"` + fields + `}}}`
}

func jwtClaim(fields string) string {
	return `{extension: {name: envoy.rate_limit_descriptors.jwt_claim, typed_config: {"@type": ` +
		`type.googleapis.com/envoy.extensions.rate_limit_descriptors.jwt_claim.v3.Descriptor, descriptor_key: tenant, ` +
		`header_name: authorization, value_prefix: "Bearer ", claim_name: org.tenant` + fields + `}}}`
}

// token is the header with a JSON web token with claims. Its signature is not valid:
// the routes do not check it.
func token(claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return "authorization: Bearer " + part([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + part([]byte(claims)) + "." + part([]byte("signature"))
}

// actionCases has each action of Envoy 1.40, and what its documentation says about
// entries and descriptors that are left out.
var actionCases = []action{
	{"source_cluster", actions("{source_cluster: {}}"), "", []ask{{want: "(source_cluster=front)"}}},
	{"destination_cluster", actions("{destination_cluster: {}}"), "", []ask{{want: "(destination_cluster=upstream)"}}},
	{"destination_cluster without a cluster", "", `direct_response: {status: 200}, typed_per_filter_config: {envoy.filters.http.ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, rate_limits: [{actions: [{destination_cluster: {}}]}]}}`, []ask{{want: noCheck}}},
	{"request_headers", actions(userHeader("")), "", []ask{
		{header: "x-user: ann", want: "(user=ann)"}, {header: "x-user: ", want: "(user=)"}, {want: noCheck},
	}},
	{"request_headers with skip_if_absent", actions(userHeader(", skip_if_absent: true"), fixed), "", []ask{
		{header: "x-user: ann", want: "(user=ann, fixed=x)"}, {want: "(fixed=x)"},
	}},
	{"query_parameters", actions("{query_parameters: {query_parameter_name: q, descriptor_key: query}}"), "", []ask{
		{query: "?q=a%20b", want: "(query=a b)"}, {query: "?r=1", want: noCheck},
	}},
	{"query_parameters with skip_if_absent", actions("{query_parameters: {query_parameter_name: q, descriptor_key: query, skip_if_absent: true}}", fixed), "", []ask{
		{query: "?q=1", want: "(query=1, fixed=x)"}, {want: "(fixed=x)"},
	}},
	{"remote_address", actions("{remote_address: {}}"), "", []ask{
		{want: "(remote_address=127.0.0.1)"}, {header: "x-forwarded-for: 192.168.1.7", want: "(remote_address=192.168.1.7)"},
		{header: "x-forwarded-for: 2001:db8::7", want: "(remote_address=2001:db8::7)"}, {listener: "pipe", want: noCheck},
	}},
	{"masked_remote_address", actions("{masked_remote_address: {v4_prefix_mask_len: 24, v6_prefix_mask_len: 48}}"), "", []ask{
		{header: "x-forwarded-for: 192.168.1.7", want: "(masked_remote_address=192.168.1.0/24)"},
		{header: "x-forwarded-for: 2001:db8:1:2::7", want: "(masked_remote_address=2001:db8:1::/48)"}, {listener: "pipe", want: noCheck},
	}},
	{"masked_remote_address by default", actions("{masked_remote_address: {}}"), "", []ask{
		{header: "x-forwarded-for: 192.168.1.7", want: "(masked_remote_address=192.168.1.7/32)"},
		{header: "x-forwarded-for: 2001:db8::7", want: "(masked_remote_address=2001:db8::7/128)"},
	}},
	{"generic_key", actions("{generic_key: {descriptor_key: k, descriptor_value: v}}"), "", []ask{{want: "(k=v)"}}},
	{"generic_key by default", actions("{generic_key: {descriptor_value: v}}"), "", []ask{{want: "(generic_key=v)"}}},
	{"header_value_match", actions("{header_value_match: {descriptor_key: k, descriptor_value: v, headers: [{name: x-user, string_match: {exact: ann}}]}}"), "", []ask{
		{header: "x-user: ann", want: "(k=v)"}, {header: "x-user: bob", want: noCheck}, {want: noCheck},
	}},
	{"header_value_match by default, of those without", actions("{header_value_match: {descriptor_value: v, expect_match: false, headers: [{name: x-user, present_match: true}]}}"), "", []ask{
		{header: "x-user: ann", want: noCheck}, {want: "(header_match=v)"},
	}},
	{"query_parameter_value_match", actions("{query_parameter_value_match: {descriptor_key: k, descriptor_value: v, query_parameters: [{name: q, string_match: {exact: '1'}}]}}"), "", []ask{
		{query: "?q=1", want: "(k=v)"}, {query: "?q=2", want: noCheck}, {want: noCheck},
	}},
	{"query_parameter_value_match by default, of those without", actions("{query_parameter_value_match: {descriptor_value: v, expect_match: false, query_parameters: [{name: q, present_match: true}]}}"), "", []ask{
		{query: "?q=1", want: noCheck}, {want: "(query_match=v)"},
	}},
	{"metadata", actions(planMetadata("")), "", []ask{{header: "x-plan: free", want: "(plan=free)"}, {want: noCheck}}},
	{"metadata with a default", actions(planMetadata(", default_value: none")), "", []ask{{header: "x-plan: free", want: "(plan=free)"}, {want: "(plan=none)"}}},
	{"metadata with skip_if_absent", actions(planMetadata(", skip_if_absent: true"), fixed), "", []ask{{header: "x-plan: free", want: "(plan=free, fixed=x)"}, {want: "(fixed=x)"}}},
	{"remote_address_match", actions(`{remote_address_match: {descriptor_key: k, descriptor_value: "%REQ(x-user)%", address_matcher: {ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}}}`), "", []ask{
		{header: "x-forwarded-for: 10.1.2.3\nx-user: ann", want: "(k=ann)"}, {header: "x-forwarded-for: 11.1.2.3\nx-user: ann", want: noCheck},
		{header: "x-forwarded-for: 10.1.2.3", want: noCheck},
	}},
	{"remote_address_match by default", actions(`{remote_address_match: {descriptor_value: "%REQ(x-user)%", default_value: none, address_matcher: {ranges: [{address_prefix: 10.0.0.0, prefix_len: 8}]}}}`), "", []ask{
		{header: "x-forwarded-for: 10.1.2.3", want: "(remote_address_match=none)"},
	}},
	{"CEL expression", actions(cel("request.headers['x-user']", "")), "", []ask{{header: "x-user: ann", want: "(cel=ann)"}, {want: noCheck}}},
	{"CEL expression with skip_if_error", actions(cel("request.headers['x-user']", ", skip_if_error: true"), fixed), "", []ask{
		{header: "x-user: ann", want: "(cel=ann, fixed=x)"}, {want: "(fixed=x)"},
	}},
	{"jwt_claim", actions(jwtClaim("")), "", []ask{
		{header: token(`{"org":{"tenant":"acme"}}`), want: "(tenant=acme)"}, {header: token(`{"org":{"tenant":""}}`), want: "(tenant=)"},
		{header: token(`{"org":{"tenant":7}}`), want: noCheck}, {header: "authorization: Bearer nonsense", want: noCheck}, {want: noCheck},
	}},
	{"jwt_claim with a default", actions(jwtClaim(", default_value: none")), "", []ask{{header: token(`{"org":{"tenant":"acme"}}`), want: "(tenant=acme)"}, {want: "(tenant=none)"}}},
	{"jwt_claim with skip_if_absent", actions(jwtClaim(", skip_if_absent: true"), fixed), "", []ask{{header: token(`{"org":{"tenant":"acme"}}`), want: "(tenant=acme, fixed=x)"}, {want: "(fixed=x)"}}},
	{"a drop loses its descriptor only", actions(userHeader(""), fixed) + ", " + actions(fixed), "", []ask{
		{header: "x-user: ann", want: "(user=ann, fixed=x) (fixed=x)"}, {want: "(fixed=x)"},
	}},
	{"a skip loses its entry only", actions(fixed, userHeader(", skip_if_absent: true"), "{destination_cluster: {}}"), "", []ask{
		{want: "(fixed=x, destination_cluster=upstream)"},
	}},
	{"all skipped", actions(userHeader(", skip_if_absent: true")), "", []ask{{header: "x-user: ann", want: "(user=ann)"}, {want: "()"}}},
	{"entries in their order", actions("{destination_cluster: {}}", fixed, "{remote_address: {}}"), "", []ask{
		{want: "(destination_cluster=upstream, fixed=x, remote_address=127.0.0.1)"},
	}},
	{"no policy", "", "route: {cluster: upstream}", []ask{{want: noCheck}}},
}

const hitByAction = "domain: edge\ndescriptors: [{key: fixed, rate_limit: {unit: year, requests_per_unit: 1000000}}]\n"

func TestConformanceOfActions(t *testing.T) {
	t.Parallel()
	s := serve(t, hitByAction, "RESPONSE_DYNAMIC_METADATA=true")
	var routes []frontRoute
	path := func(i int) string { return fmt.Sprint("/", i) }
	for i, a := range actionCases {
		if a.route != "" {
			routes = append(routes, frontRoute{path(i), a.route})
		} else {
			routes = append(routes, limited(path(i), a.policies))
		}
	}
	staged := func(stage int, value string) string {
		return fmt.Sprintf("{stage: %d, actions: [{generic_key: {descriptor_key: staged, descriptor_value: %s}}]}", stage, value)
	}
	routes = append(routes,
		limited("/stages", staged(0, "first")+", "+staged(1, "second")+", "+staged(2, "never")),
		limited("/default", actions(fixed)),
		frontRoute{"/default-without", "route: {cluster: upstream}"},
		perFilter("/domain", "domain: elsewhere, rate_limits: ["+actions(fixed)+"]"),
	)
	for _, option := range []string{"INCLUDE", "OVERRIDE", "IGNORE"} {
		own := `typed_per_filter_config: {envoy.filters.http.ratelimit: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, vh_rate_limits: ` + option + `}}`
		routes = append(routes,
			frontRoute{"/" + option, "route: {cluster: upstream, rate_limits: [" + actions(fixed) + "]}, " + own},
			frontRoute{"/" + option + "-without", "route: {cluster: upstream}, " + own})
	}
	filters := []string{
		headerToMetadata("request_rules: [{header: x-plan, on_header_present: {metadata_namespace: caller, key: plan, type: STRING}}]"),
		rateLimit("rls", patiently),
	}
	later := rateLimit("rls", patiently+", stage: 1, metadata_namespace: later")
	f := startFront(t, map[string]*service{"rls": s}, []frontListener{
		{Name: "front", Filters: filters},
		{Name: "pipe", Pipe: filepath.Join(t.TempDir(), "s"), Filters: filters},
		{Name: "staged", Filters: append(slices.Clone(filters), strings.Replace(later, "name: envoy.filters.http.ratelimit", "name: later", 1))},
		{Name: "hosts", Filters: filters, HostLimits: actions("{generic_key: {descriptor_key: host, descriptor_value: all}}")},
	}, routes)

	check := func(t *testing.T, path string, a ask) {
		t.Helper()
		if a.listener == "" {
			a.listener = "front"
		}
		var headers []string
		if a.header != "" {
			headers = strings.Split(a.header, "\n")
		}
		const checks = `rls_requests_total{code="OK"}`
		before := s.in(t).stat(checks)
		got := f.want(t, http.StatusOK, a.listener, path+a.query, headers...)
		asked := s.in(t).stat(checks) - before
		switch arrived := descriptorsIn(t, got.header.Get("X-Descriptors")); {
		case a.want == noCheck && asked != 0:
			t.Errorf("%+v: the service was asked for %s", a, arrived)
		case a.want != noCheck && (asked != 1 || arrived != a.want):
			t.Errorf("%+v: %v checks, arrived %q", a, asked, arrived)
		}
	}
	for i, a := range actionCases {
		t.Run(a.name, func(t *testing.T) {
			for _, ask := range a.asks {
				check(t, path(i), ask)
			}
		})
	}
	t.Run("stages", func(t *testing.T) {
		a := f.want(t, http.StatusOK, "staged", "/stages")
		first, second := descriptorsIn(t, a.header.Get("X-Descriptors")), descriptorsIn(t, a.header.Get("X-Later"))
		if first != "(staged=first)" || second != "(staged=second)" {
			t.Errorf("at first %q, then %q", first, second)
		}
		check(t, "/stages", ask{want: "(staged=first)"})
	})
	t.Run("INCLUDE, OVERRIDE and IGNORE", func(t *testing.T) {
		for path, want := range map[string]string{
			"/INCLUDE": "(fixed=x) (host=all)", "/OVERRIDE": "(fixed=x)", "/IGNORE": "(fixed=x)", "/default": "(fixed=x)",
			"/INCLUDE-without": "(host=all)", "/OVERRIDE-without": "(host=all)", "/IGNORE-without": noCheck, "/default-without": "(host=all)",
		} {
			check(t, path, ask{listener: "hosts", want: want})
		}
	})
	t.Run("a domain of the route", func(t *testing.T) {
		check(t, "/domain", ask{want: "(fixed=x)"})
		for path, want := range map[string]string{"/domain": "elsewhere", "/default": "edge"} {
			if got := f.want(t, http.StatusOK, "front", path).header.Get("X-Domain"); got != want {
				t.Errorf("%s asked for %q, want %q", path, got, want)
			}
		}
	})
}

// descriptorsIn lists the descriptors in dynamic metadata as "(key=value, …) …".
func descriptorsIn(t *testing.T, metadata string) string {
	t.Helper()
	if metadata == "" || metadata == "-" {
		return ""
	}
	var descriptors []struct{ Entries []string }
	if err := json.Unmarshal([]byte(metadata), &descriptors); err != nil {
		t.Fatalf("%v in %q", err, metadata)
	}
	var text []string
	for _, d := range descriptors {
		text = append(text, "("+strings.Join(d.Entries, ", ")+")")
	}
	return strings.Join(text, " ")
}
