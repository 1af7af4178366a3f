package integration

import (
	"fmt"
	"net/http"
	"testing"

	"example.org/rls/internal/testenv"
)

const costRules = `
domain: edge
descriptors:
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: mark, rate_limit: {unit: year, requests_per_unit: 1000000}}
`

// costs is an Envoy and a service with 100 tokens for each user.
type costs struct {
	*front
	service *service
}

func TestConformanceOfCosts(t *testing.T) {
	t.Parallel()
	s := serve(t, costRules)
	filters := []string{
		rateLimit("rls", patiently),
		headerToMetadata("response_rules: [{header: x-tokens, on_header_present: {metadata_namespace: usage, key: tokens, type: NUMBER}}]"),
	}
	const addend = `{name: envoy.filters.http.set_filter_state, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.set_filter_state.v3.Config, ` +
		`on_request_headers: [{object_key: envoy.ratelimit.hits_addend, format_string: {text_format_source: {inline_string: "7"}}}]}}`
	const whenDone = `, hits_addend: {format: "%DYNAMIC_METADATA(usage:tokens)%"}, apply_on_stream_done: true`
	// Envoy charges the mark in the same request as the tokens at the end of a
	// stream: once the mark is counted, so are the tokens, if there are any.
	mark := keyed("mark", ", apply_on_stream_done: true")
	c := &costs{service: s, front: startFront(t, map[string]*service{"rls": s}, []frontListener{
		{Name: "front", Filters: filters},
		{Name: "addend", Filters: append([]string{addend}, filters...)},
	}, []frontRoute{
		perFilter("/fixed", "rate_limits: ["+keyed("tokens", ", hits_addend: {number: 30}")+"]"),
		limited("/one", keyed("tokens", "")),
		perFilter("/done", "rate_limits: ["+keyed("tokens", whenDone)+", "+mark+"]"),
		perFilter("/pre-checked", "rate_limits: ["+keyed("tokens", ", hits_addend: {number: 0}")+", "+keyed("tokens", whenDone)+", "+mark+"]"),
		perFilter("/one-and-done", "rate_limits: ["+keyed("tokens", "")+", "+keyed("tokens", ", hits_addend: {number: 5}, apply_on_stream_done: true")+", "+mark+"]"),
	})}
	t.Run("a fixed hits_addend", c.fixed)
	t.Run("tokens are charged when the stream is done", c.whenDone)
	t.Run("no metadata, no charge", c.noMetadata)
	t.Run("a pre-check without cost", c.preCheck)
	t.Run("an addend in the filter state", c.filterState)
	t.Run("a charge after a denial", c.afterDenial)
}

// left is how many tokens a user still has.
func (c *costs) left(t *testing.T, user string) uint32 {
	return c.service.in(t).hit("edge", costing(0, desc("tokens", user))).LimitRemaining
}

func (c *costs) wantLeft(t *testing.T, user string, want uint32) {
	t.Helper()
	if got := c.left(t, user); got != want {
		t.Errorf("%s: %d tokens are left, want %d", user, got, want)
	}
}

// wantDone waits until the service has counted that many streams of the user as done.
func (c *costs) wantDone(t *testing.T, user string, streams uint32) {
	t.Helper()
	testenv.Eventually(t, patience, func() bool {
		return c.service.in(t).hit("edge", costing(0, desc("mark", user))).LimitRemaining == 1000000-streams
	}, fmt.Sprint("streams that are done: ", streams))
}

func (c *costs) fixed(t *testing.T) {
	for _, left := range []uint32{70, 40, 10} {
		c.want(t, http.StatusOK, "front", "/fixed", "x-user: 78")
		c.wantLeft(t, "78", left)
	}
	c.want(t, http.StatusTooManyRequests, "front", "/fixed", "x-user: 78")
}

func (c *costs) whenDone(t *testing.T) {
	for i, left := range []uint32{58, 16} {
		c.want(t, http.StatusOK, "front", "/done", "x-user: 79", "answer-x-tokens: 42")
		c.wantDone(t, "79", uint32(i+1))
		c.wantLeft(t, "79", left)
	}
}

func (c *costs) noMetadata(t *testing.T) {
	for i, headers := range [][]string{
		nil, {"answer-x-tokens: many"}, {"answer-x-tokens: -3"}, {"answer-x-tokens: 1000000001"}, {"answer-x-tokens: 0"},
	} {
		c.want(t, http.StatusOK, "front", "/done", append(headers, "x-user: 80")...)
		c.wantDone(t, "80", uint32(i+1))
		c.wantLeft(t, "80", 100)
	}
}

func (c *costs) preCheck(t *testing.T) {
	for i, left := range []uint32{40, 0} { // 60 of 100, then 60 more, which is 20 too many
		c.want(t, http.StatusOK, "front", "/pre-checked", "x-user: 82", "answer-x-tokens: 60")
		c.wantDone(t, "82", uint32(i+1))
		c.wantLeft(t, "82", left)
	}
	c.want(t, http.StatusTooManyRequests, "front", "/pre-checked", "x-user: 82", "answer-x-tokens: 60")
}

func (c *costs) filterState(t *testing.T) {
	c.want(t, http.StatusOK, "addend", "/one", "x-user: 83")
	c.wantLeft(t, "83", 93)
	// The hits_addend of the policy takes precedence.
	c.want(t, http.StatusOK, "addend", "/fixed", "x-user: 83")
	c.wantLeft(t, "83", 63)
}

func (c *costs) afterDenial(t *testing.T) {
	c.service.in(t).hit("edge", costing(100, desc("tokens", "84")))
	c.want(t, http.StatusTooManyRequests, "front", "/one-and-done", "x-user: 84")
	c.wantDone(t, "84", 1)
	// 100 + 1 + 5 were charged: a refund of 7 leaves one.
	c.service.in(t).want("edge", refund(7, desc("tokens", "84")), ok, 1)
}
