package service_test

import (
	"context"
	"fmt"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

const thresholdRules = `domain: d
descriptors:
- {key: user, rate_limit: &l {unit: minute, requests_per_unit: 10, thresholds: [{at: 90%, headers: {x-b: "90"}, response_headers: {x-r: "90"}, metadata: {captcha: true}}, {at: 50%, headers: {x-a: "50"}}]}}
- {key: named, rate_limit: {<<: *l, name: n}}
- {key: bucket, rate_limit: {<<: *l, unit: second, requests_per_unit: 1, strategy: token_bucket, burst: 4}}
- {key: shadow, shadow_mode: true, rate_limit: *l}
- {key: watched, rate_limits: [{<<: *l, shadow_mode: true}, {unit: hour, requests_per_unit: 100}]}
- {key: several, rate_limits: [{<<: *l, thresholds: [{at: 20%, headers: {x-a: minute}}]}, {unit: hour, requests_per_unit: 4, thresholds: [{at: 50%, headers: {x-a: hour, x-h: "1"}}]}]}
- {key: full, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: quota, quota_mode: true, rate_limit: {<<: *l, requests_per_unit: 2}}
- {key: other, quota_mode: true, rate_limit: {<<: *l, requests_per_unit: 4}}
- {key: shadowed, shadow_mode: true, rate_limits: [*l, {unit: hour, requests_per_unit: 0}]}
`

// added lists what thresholds add to a reply: headers upstream (>), of the response (<) and
// the items of dynamic metadata.
func added(resp *pb.RateLimitResponse) string {
	var all []string
	for _, h := range resp.RequestHeadersToAdd {
		all = append(all, ">"+h.Key+"="+h.Value)
	}
	for _, h := range resp.ResponseHeadersToAdd {
		all = append(all, "<"+h.Key+"="+h.Value)
	}
	if list := resp.DynamicMetadata.GetFields()["thresholds"]; list != nil {
		for _, item := range list.GetListValue().AsSlice() {
			all = append(all, fmt.Sprint(item)) // fmt sorts the keys
		}
	}
	return strings.Join(all, " ")
}

// TestThresholds: what the highest threshold that is reached adds to a reply, and that others
// add nothing.
func TestThresholds(t *testing.T) {
	const (
		at50 = ">x-a=50 map[at:50% rule:d.user]"
		at90 = ">x-b=90 <x-r=90 map[at:90% captcha:true rule:d.user]"
	)
	full := func(req *pb.RateLimitRequest) *pb.RateLimitRequest {
		req.Descriptors = append(req.Descriptors, desc("full", "x"))
		return req
	}
	of := func(rule string, text string) string { return strings.ReplaceAll(text, "d.user", rule) }
	metadataOnly := func(text string) string { _, after, _ := strings.Cut(text, "map["); return "map[" + after }
	for name, steps := range map[string][]struct {
		req  *pb.RateLimitRequest
		want string
	}{
		"charges and checks": {
			{request(withHits(4, desc("user", "a"))), ""}, {request(desc("user", "a")), at50}, {request(withHits(0, desc("user", "a"))), at50},
			{request(withHits(3, desc("user", "a"))), at50}, {request(desc("user", "a")), at90}, {request(refund(0, desc("user", "a"))), ""},
			{request(desc("user", "a")), at90}, {request(withHits(0, desc("user", "a"))), at90}, {request(desc("user", "a")), ""},
		},
		"a refund":                {{request(withHits(9, desc("user", "a"))), at90}, {request(refund(1, desc("user", "a"))), ""}, {request(withHits(0, desc("user", "a"))), at50}},
		"a denied request":        {{request(withHits(9, desc("user", "a"))), at90}, {full(request(withHits(0, desc("user", "a")))), ""}},
		"a name":                  {{request(withHits(5, desc("named", "a"))), of("n", at50)}},
		"a burst":                 {{request(desc("bucket", "a")), ""}, {request(desc("bucket", "a")), of("d.bucket", at50)}, {request(withHits(2, desc("bucket", "a"))), of("d.bucket", at90)}},
		"shadow mode":             {{request(withHits(9, desc("shadow", "a"))), metadataOnly(of("d.shadow", at90))}, {request(withHits(2, desc("shadow", "a"))), ""}},
		"a denial in shadow mode": {{request(withHits(9, desc("shadowed", "a"))), ""}},
		"a watched limit":         {{request(withHits(9, desc("watched", "a"))), metadataOnly(of("d.watched", at90))}, {request(withHits(2, desc("watched", "a"))), ""}},
		"several limits": {
			{request(desc("several", "a")), ""}, {request(desc("several", "a")), ">x-a=minute >x-a=hour >x-h=1 map[at:20% rule:d.several] map[at:50% rule:d.several]"},
		},
		"several descriptors": {{request(withHits(5, desc("user", "a")), withHits(9, desc("named", "a"))), ">x-a=50 >x-b=90 <x-r=90 map[at:50% rule:d.user] map[at:90% captcha:true rule:n]"}},
		"quota mode": {
			{request(withHits(2, desc("quota", "a")), desc("other", "a")), of("d.quota", at90)},
			{request(desc("quota", "a"), desc("other", "a")), of("d.other", at50)}, // the first quota is over
		},
		"an override":                {{request(withLimit(2, 2, nil, desc("user", "a"))), of("d.override", at50)}},
		"an override without a rule": {{request(withLimit(2, 2, wrapperspb.UInt32(1), desc("none", "a"))), ""}},
		"a limit of 0":               {{request(withLimit(0, 2, nil, desc("user", "a"))), ""}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, thresholdRules, replying(envoy.Reply{Metadata: true}))
			for i, s := range steps {
				if got := added(r.call(s.req)); got != s.want {
					t.Errorf("step %d: got %q, want %q", i, got, s.want)
				}
			}
		})
	}
	t.Run("SHADOW_MODE", func(t *testing.T) {
		r := start(t, thresholdRules, replying(envoy.Reply{Metadata: true}), func(c *config) { c.ShadowMode = true })
		if got := added(r.call(request(withHits(9, desc("user", "a"))))); got != metadataOnly(at90) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("without dynamic metadata", func(t *testing.T) {
		r := start(t, thresholdRules)
		if got := added(r.call(request(withHits(5, desc("user", "a"))))); got != ">x-a=50" {
			t.Errorf("got %q", got)
		}
	})
}

// TestThresholdsWhileTheStoreIsAway: a share of the limit counts, and a limit whose use nobody
// knows has no thresholds.
func TestThresholdsWhileTheStoreIsAway(t *testing.T) {
	const text = "domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: 10, on_error: POLICY, thresholds: [{at: 50%, headers: {x-a: b}}]}}\n"
	for policy, want := range map[string]string{"allow": "", "deny": "", "local": "    >x-a=b"} {
		r := start(t, strings.ReplaceAll(text, "POLICY", policy), storeAway, local(t))
		var got []string
		for range 5 {
			got = append(got, added(r.call(request(desc("k", "a")))))
		}
		if got := strings.TrimRight(strings.Join(got, " "), " "); got != want {
			t.Errorf("%s: %q, want %q", policy, got, want)
		}
	}
}

// TestThresholdDelay: the longest delay holds the answer, beside a turn in a queue the longer
// of both, as far as the caller's deadline allows, and nothing is charged again.
func TestThresholdDelay(t *testing.T) {
	const text = `domain: d
descriptors:
- {key: slow, rate_limit: {unit: day, requests_per_unit: 100, thresholds: [{at: 1%, delay: 700ms}]}}
- {key: slower, rate_limit: {unit: day, requests_per_unit: 100, thresholds: [{at: 1%, delay: 1s}]}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 100, thresholds: [{at: 1%, delay: 1s}]}}
- {key: queue, rate_limit: {unit: second, requests_per_unit: 2, strategy: leaky_bucket, burst: 1, max_delay: 10s, thresholds: [{at: 50%, delay: 700ms}]}}
`
	synctest.Test(t, func(t *testing.T) {
		r := start(t, text)
		ask := func(deadline time.Duration, keys ...string) time.Duration {
			t.Helper()
			var a service.Request
			a.Domain = "d"
			for _, key := range keys {
				a.Descriptors = append(a.Descriptors, service.Descriptor{Entries: []descriptors.Entry{{Key: key}}})
			}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			began := time.Now()
			o, err := r.service.Decide(ctx, &a)
			if err != nil || o.Over {
				t.Fatalf("%v: %+v, %v", keys, o, err)
			}
			return time.Since(began)
		}
		for _, c := range []struct {
			keys []string
			want time.Duration
		}{
			{[]string{"slow"}, 700 * time.Millisecond}, {[]string{"slow", "slower"}, time.Second}, {[]string{"slower", "slow"}, time.Second}, {[]string{"shadow"}, 0},
			{[]string{"queue"}, 700 * time.Millisecond}, {[]string{"queue"}, 700 * time.Millisecond}, {[]string{"queue"}, time.Second},
		} {
			if got := ask(time.Minute, c.keys...); got != c.want {
				t.Errorf("%v took %v, want %v", c.keys, got, c.want)
			}
		}
		if got := ask(100*time.Millisecond, "slow"); got < 50*time.Millisecond || got >= 100*time.Millisecond {
			t.Errorf("with a deadline of 100ms it took %v", got)
		}
		r.want(withHits(0, desc("slow", "")), ok, 96)
	})
}

// FuzzThresholds loads any thresholds. What passes can be sent: the reply has the headers and
// the metadata of the highest threshold, and a delay of at most a second.
func FuzzThresholds(f *testing.F) {
	for _, text := range []string{
		"[]", "~", "[{at: 1%}]", "[{at: 50%, headers: {x-a: b, X-B: 1.5}, response_headers: {c: yes}, metadata: {d: [1, ~, {e: .5}]}, delay: 1s}, {at: 99%}]",
		"[{at: 1e1%, delay: .5s, headers: {a: ''}}, {at: 50.0001%}]", "[{at: 100%}]", "[{at: 50%, headers: {Host: x}}]", "[{at: 50%, headers: {a: \"b\\r\\nc: d\"}}]",
		"[{at: 50%, metadata: {a: .nan, b: .inf, c: !!binary /w==}}]", "[&a {at: 50%, headers: &h {x: y}}, {<<: *a, at: 60%, response_headers: {<<: *h, x: z}}]",
	} {
		f.Add(text, uint8(3))
	}
	r := start(f, "domain: d")
	var calls atomic.Int64 // each counts at a key of its own
	server := envoy.New(undelayed{r.service}, envoy.Reply{Metadata: true}, service.Caps{})
	f.Fuzz(func(t *testing.T, text string, hits uint8) {
		content := "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 100, thresholds: " + text + "}\n"
		tree, _, err := yaml.Load([]yaml.Text{{Name: "f", Content: []byte(content)}}, yaml.Options{})
		if err != nil || tree.Domain("d") == nil {
			return
		}
		rule := tree.Domain("d").Match([]descriptors.Entry{{Key: "k"}})
		if rule == nil || len(rule.Limits) != 1 || rule.Limits[0].Requests != 100 || rule.Shadow || rule.Limits[0].Tried() {
			return
		}
		l := &rule.Limits[0]
		var highest descriptors.Threshold
		for i, one := range l.Thresholds {
			if i > 0 && one.At <= l.Thresholds[i-1].At || one.At < 10_000 || one.At > 990_000 || one.Delay < 0 || one.Delay > time.Second {
				t.Fatalf("thresholds %+v", l.Thresholds)
			}
			if uint64(hits)*1_000_000 >= uint64(one.At)*uint64(l.Capacity()) {
				highest = one
			}
		}
		if uint64(hits) > uint64(l.Capacity()) {
			highest = descriptors.Threshold{}
		}
		r.service.SetTree(tree)
		resp, err := server.ShouldRateLimit(t.Context(), request(withHits(uint64(hits), desc("k", fmt.Sprint(calls.Add(1))))))
		if err != nil {
			t.Fatal(err)
		}
		for i, lists := range [][]*core.HeaderValue{resp.RequestHeadersToAdd, resp.ResponseHeadersToAdd} {
			want := [][]descriptors.Header{highest.Headers, highest.ResponseHeaders}[i]
			if len(lists) != len(want) {
				t.Fatalf("headers %v, want %v", lists, want)
			}
			for j, h := range lists {
				if h.Key != want[j].Name || h.Value != want[j].Value || !httpguts.ValidHeaderFieldName(h.Key) || !httpguts.ValidHeaderFieldValue(h.Value) {
					t.Fatalf("headers %v, want %v", lists, want)
				}
			}
		}
		items := resp.DynamicMetadata.GetFields()["thresholds"].GetListValue().GetValues()
		if resp.DynamicMetadata == nil || (highest.At == 0) != (len(items) == 0) || len(items) == 1 && items[0].GetStructValue().Fields["at"].GetStringValue() != highest.At.String() {
			t.Fatalf("%d hits: metadata %v, want %+v", hits, resp.DynamicMetadata, highest)
		}
	})
}

// undelayed decides without the wait for Outcome.Delay.
type undelayed struct{ *service.Service }

func (s undelayed) Decide(ctx context.Context, r *service.Request) (*service.Outcome, error) {
	return s.Evaluate(ctx, r)
}

// TestTheHighestThresholdApplies: for random thresholds and uses the threshold is the one that
// a comparison of fractions chooses.
func TestTheHighestThresholdApplies(t *testing.T) {
	random := testenv.Random(t)
	for range 500 {
		var items []string
		parts := map[string]*big.Rat{}
		for range 1 + random.IntN(6) {
			whole, rest := 1+random.IntN(98), random.IntN(10_000)*random.IntN(2)
			at := strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%04d", whole, rest), "0"), ".") + "%"
			if parts[at] == nil {
				items, parts[at] = append(items, fmt.Sprintf("{at: %s}", at)), big.NewRat(int64(whole*10_000+rest), 1_000_000)
			}
		}
		capacity, shape := 1+random.Int64N(2000), "requests_per_unit: %d"
		if random.IntN(2) == 0 {
			shape = "requests_per_unit: 5, strategy: token_bucket, burst: %d"
		}
		r := start(t, fmt.Sprintf("domain: d\ndescriptors:\n- {key: k, rate_limit: {unit: hour, "+shape+", thresholds: [%s]}}\n", capacity, strings.Join(items, ", ")))
		l := &r.service.Tree().Domain("d").Match([]descriptors.Entry{{Key: "k"}}).Limits[0]
		for i := range 20 {
			used, want := random.Int64N(capacity+1), ""
			for at, part := range parts {
				reached := new(big.Rat).Mul(part, big.NewRat(capacity, 1)).Cmp(big.NewRat(used, 1)) <= 0
				if reached && (want == "" || part.Cmp(parts[want]) > 0) {
					want = at
				}
			}
			got := ""
			o, err := r.service.Evaluate(t.Context(), &service.Request{Domain: "d", Descriptors: []service.Descriptor{{
				Entries: []descriptors.Entry{{Key: "k", Value: fmt.Sprint(i)}}, Hits: new(uint64(used)),
			}}})
			if err != nil || len(o.Verdicts) != 1 {
				t.Fatalf("%+v, %v", o, err)
			}
			if o.Verdicts[0].Reached != nil {
				got = o.Verdicts[0].Reached.At.String()
			}
			if got != want || l.Capacity() != capacity {
				t.Fatalf("%v: %d of %d reach %q, want %q", items, used, capacity, got, want)
			}
		}
	}
}
