package metrics_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/metrics"
)

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

func TestTagsAreLabels(t *testing.T) {
	m := open(t, metrics.Options{Tags: map[string]string{"commit": `a"b`}})
	m.Loaded(nil)
	m.Called(method, time.Millisecond)
	serves(t, m,
		`rls_panics_total{commit="a\"b"} 0`, `ratelimit_service_config_load_success{commit="a\"b"} 1`,
		`ratelimit_service_response_time_seconds_count{commit="a\"b",grpc_method="ShouldRateLimit"} 1`)
}

// Tags of statsd may have names that labels cannot have. No tag keeps the process
// from starting.
func TestTagsOfAnyName(t *testing.T) {
	for _, tt := range []struct {
		tags map[string]string
		want string
	}{
		{map[string]string{"a-b": "x", "b c": "y", "é": "z", "1": "one"}, `go_goroutines{_="z",_1="one",a_b="x",b_c="y"}`},
		{map[string]string{"a-b": "x", "a_b": "y"}, `go_goroutines{a_b="x",extra_a_b="y"}`},
		{map[string]string{"__x": "y", "v": "\xff", "": "x", "none": ""}, `go_goroutines{extra___x="y",v="_"}`},
	} {
		if all := page(t, open(t, metrics.Options{Tags: tt.tags})); !strings.Contains(all, tt.want+" ") {
			t.Errorf("%v: no %s in\n%s", tt.tags, tt.want, all)
		}
	}
}

// A tag with the name of a label that a series has does not replace it.
func TestTagsLikeLabels(t *testing.T) {
	tags := map[string]string{}
	for _, found := range regexp.MustCompile(`[{,](\w+)="`).FindAllStringSubmatch(page(t, withAll(t, metrics.Options{})), -1) {
		tags[found[1]] = "tag"
	}
	all := page(t, withAll(t, metrics.Options{Tags: tags}))
	for name := range tags {
		if !strings.Contains(all, `extra_`+name+`="tag"`) {
			t.Errorf("the tag %s is not there", name)
		}
	}
	if !strings.Contains(all, `domain="d"`) {
		t.Errorf("the page is\n%s", all)
	}
}
