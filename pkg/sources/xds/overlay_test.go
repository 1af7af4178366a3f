package xds_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"example.org/rls/internal/testenv"
	"example.org/rls/internal/testenv/controlplane"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/xds"
)

// ofEnvoyGateway are the resources that Envoy Gateway's translator makes of
// testdata/gateway/manifests.yaml. make gateway writes them anew.
func ofEnvoyGateway(t *testing.T) (all []*ratelimit.RateLimitConfig) {
	t.Helper()
	content, err := os.ReadFile("testdata/gateway/resources.json")
	if err != nil {
		t.Fatal(err)
	}
	var texts []json.RawMessage
	if err := json.Unmarshal(content, &texts); err != nil || len(texts) != 2 {
		t.Fatalf("%d resources, %v", len(texts), err)
	}
	for _, text := range texts {
		config := new(ratelimit.RateLimitConfig)
		if err := protojson.Unmarshal(text, config); err != nil {
			t.Fatal(err)
		}
		all = append(all, config)
	}
	return all
}

// What Envoy Gateway cannot say is laid over what it sends, also over what it sends later.
func TestOverlaysOverTheRulesOfEnvoyGateway(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(map[bool]string{false: "SOTW", true: "delta"}[delta], func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "overlay.yaml")
			write := func(content string) {
				if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			example, err := os.ReadFile("../../../deploy/gateways/envoy-gateway/overlay.yaml")
			if err != nil {
				t.Fatal(err)
			}
			write(string(example))
			at, plane := controlplane.NewPort(t), controlplane.New(t, node)
			configs := ofEnvoyGateway(t)
			plane.Set("1", configs...)
			at.Serve(plane)
			s := &xds.Source{Server: at.Addr, Delta: delta}
			prepare(s)
			o := observing(t, s, &sources.Rules{
				Overlays: &sources.Files{Root: file, Every: 20 * time.Millisecond, Gone: func(bool) {}, Log: s.Log},
				Again:    make(chan struct{}, 1), Repeats: true, Log: s.Log,
			})
			become := func(want string) {
				t.Helper()
				got := func() string {
					if o.tree.Load() == nil {
						return ""
					}
					return strings.NewReplacer(", quota_mode: false", "", file, "o.yaml", "httproute/default/backend/rule/0/match/0/www_example_com", "ROUTE").Replace(o.dump())
				}
				defer func() {
					if t.Failed() {
						t.Logf("got\n%s\nwant\n%s\n%v", got(), want, o.outcomes())
					}
				}()
				testenv.Eventually(t, soon, func() bool { return got() == want }, "in force")
			}
			become(`ai/tokens.ai/tokens/rule/0_ai/tokens/rule/0.rule-0-match-0: unit=HOUR requests_per_unit=40000, shadow_mode: false, strategy: gcra, burst: 1, overdraft: true, overlay: overdraft, requests_per_unit, strategy from o.yaml:18
default/eg/http.ROUTE_ROUTE.masked_remote_address_0.0.0.0/0.remote_address: unit=SECOND requests_per_unit=100, shadow_mode: false, strategy: token_bucket, burst: 50, on_error: local, lease: {share: 5%, ttl: 250ms}, overlay: burst, on_error, strategy from o.yaml:11; lease from o.yaml:14
default/eg/http.ROUTE_ROUTE.rule-0-match-0: unit=MINUTE requests_per_unit=3, shadow_mode: false, strategy: token_bucket, burst: 50, on_error: local, overlay: burst, on_error, strategy from o.yaml:11
default/eg/http.ROUTE_ROUTE.rule-2-match-0_rule-2-match-0: unit=DAY requests_per_unit=10000, shadow_mode: true, plan: company, overlay: plan from o.yaml:21
default/eg/http.ROUTE_ROUTE.rule-2-match-0_rule-2-match-0: unit=MINUTE requests_per_unit=100, shadow_mode: true, strategy: token_bucket, burst: 20, plan: company, overlay: plan from o.yaml:21
`)
			// The overlay alone changes.
			before := o.tree.Load().Hash()
			write(strings.Replace(string(example), "burst: 20", "burst: 30", 1))
			testenv.Eventually(t, soon, func() bool { return strings.Contains(o.dump(), "burst: 30") }, "the plan has another burst")
			if o.tree.Load().Hash() == before {
				t.Error("another overlay has the same hash")
			}
			write(string(example))

			configs[1].Descriptors[0].Descriptors = configs[1].GetDescriptors()[0].GetDescriptors()[:1]
			configs[1].Descriptors[0].Descriptors[0].RateLimit.RequestsPerUnit = 7
			plane.Set("2", configs[1])
			become(`default/eg/http.ROUTE_ROUTE.rule-0-match-0: unit=MINUTE requests_per_unit=7, shadow_mode: false, strategy: token_bucket, burst: 50, on_error: local, overlay: burst, on_error, strategy from o.yaml:11
`)
			write(`overlays: [{path: [{key: "httproute/*"}], set: {strategy: sliding_window, rollout: 50%}}]`)
			become(`default/eg/http.ROUTE_ROUTE.rule-0-match-0: unit=MINUTE requests_per_unit=7, shadow_mode: false, strategy: sliding_window, rollout: 50%, overlay: rollout, strategy from o.yaml:1
`)
			// A problem names the overlay, and the descriptor that the gateway has sent.
			write(`overlays: [{domain: "*", set: {max_delay: 1s}}]`)
			testenv.Eventually(t, soon, func() bool {
				all := o.outcomes()
				err := all[len(all)-1]
				return err != nil && strings.HasPrefix(err.Error(), file+`:1:43: overlays[0].set.max_delay: `) && strings.HasSuffix(err.Error(), "(laid over the rule at default/eg/http: descriptors[0].descriptors[0])")
			}, "refused")
			become(`default/eg/http.ROUTE_ROUTE.rule-0-match-0: unit=MINUTE requests_per_unit=7, shadow_mode: false, strategy: sliding_window, rollout: 50%, overlay: rollout, strategy from o.yaml:1
`)
		})
	}
}
