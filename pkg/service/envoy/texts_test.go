package envoy

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
)

// A reply to any texts is a message that Envoy reads, with all of its metadata.
func TestRepliesToAnyTexts(t *testing.T) {
	store, err := memory.New(memory.Options{MaxKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(service.Config{Store: store})
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(`domain: shop
descriptors:
- {key: user, metadata: {plan: free}, rate_limits: [{unit: hour, requests_per_unit: 1, thresholds: [{at: 1%, metadata: {a: b}}]}, {unit: day, requests_per_unit: 0, shadow_mode: true}]}
- {key: "k*", rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: job, rate_limit: {unit: hour, requests_per_unit: 900, reserve: true}}
- {key: !!binary /2s=, value: !!binary YW5u/w==, rate_limit: {unit: hour, requests_per_unit: 1, name: !!binary YW5u/w==}}
- {key: !!binary /2s=, rate_limit: {unit: hour, requests_per_unit: 1}}
`)}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.SetTree(tree)
	server := New(s, Reply{IETF: true, XRateLimit: true, Policy: true, RetryAfter: true, ProblemBody: true, Metadata: true}, service.Caps{})
	brought := &service.Override{RequestsPerUnit: 1, Unit: descriptors.Hour, Multiplier: 1}
	for text, shown := range map[string]string{
		"ann\xff": `ann\xff`, "\xff\\x": `\xff\\x`, "caf\xe9": `caf\xe9`, "\x80": `\x80`, "\xed\xa0\x80": `\xed\xa0\x80`, "\uFFFD": "\uFFFD", `ann\xff`: `ann\xff`,
	} {
		for name, q := range map[string]*service.Request{
			"user=%s":       {Domain: "shop", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: text}}}}},
			"k%s=v":         {Domain: "shop", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "k" + text, Value: "v"}}}}},
			"job=%s":        {Domain: "shop", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "job", Value: text}}}}},
			"x=%s":          {Domain: "shop", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "x", Value: text}}, Limit: brought}}},
			"domain=%s":     {Domain: text, Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "domain", Value: text}}, Limit: brought}}},
			`\xffk=ann\xff`: {Domain: "shop", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "\xffk", Value: "ann\xff"}}}}},
			`\xffk=bob\xff`: {Domain: "shop", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "\xffk", Value: "bob\xff"}}}}},
		} {
			for range 2 { // passes, and is denied
				data, err := server.decide(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				var reply pb.RateLimitResponse
				if err := proto.Unmarshal(data, &reply); err != nil {
					t.Fatalf("%q in %s: %v", text, name, err)
				}
				if reply.DynamicMetadata == nil {
					t.Fatalf("%q in %s: no metadata", text, name)
				}
				fields := reply.GetDynamicMetadata().GetFields()
				want := name
				if strings.Contains(name, "%s") {
					want = fmt.Sprintf(name, shown)
				}
				if got := fields["descriptors"].GetListValue().GetValues()[0].GetStructValue().GetFields()["entries"].GetListValue().GetValues()[0].GetStringValue(); got != want {
					t.Errorf("%q: got %q, want %q", text, got, want)
				}
				if domain := fields["domain"].GetStringValue(); domain != "shop" && domain != shown || domain == "shop" && fields["rule"].GetStringValue() == "" {
					t.Errorf("%q in %s: got %v", text, name, fields)
				}
				if strings.HasPrefix(name, "job") && fields["reservation"] == nil {
					t.Errorf("%q: no reservation in %v", text, fields)
				}
			}
		}
	}
}
