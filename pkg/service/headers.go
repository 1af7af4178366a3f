package service

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http/httpguts"

	"example.org/rls/pkg/descriptors"
)

// Reply says what a reply holds besides statuses. All of it describes one
// limit: of those that denied the one with the longest wait, else the one with
// the least remaining. Limits in shadow mode never show.
type Reply struct {
	// RateLimit is envoyproxy/ratelimit's three headers.
	RateLimit HeaderNames
	// Upstream is the same three for the request that goes on to the upstream.
	Upstream HeaderNames
	// IETF is RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-11.
	IETF bool
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, the last as
	// seconds since the epoch.
	XRateLimit bool
	// RetryAfter is Retry-After in seconds (RFC 9110, 10.2.3), on denials.
	RetryAfter bool
	// ProblemBody makes the body of a denial an application/problem+json (RFC
	// 9457) of the draft's type quota-exceeded.
	ProblemBody bool
	// Metadata fills in dynamic_metadata.
	Metadata bool
}

// HeaderNames names the three headers; all empty switches them off.
type HeaderNames struct{ Limit, Remaining, Reset string }

// check refuses header names that would break a reply.
func (r *Reply) check() error {
	for _, names := range []HeaderNames{r.RateLimit, r.Upstream} {
		for _, name := range []string{names.Limit, names.Remaining, names.Reset} {
			if (name == "") != (names == HeaderNames{}) {
				return fmt.Errorf("service: header names %+v: give all three or none", names)
			}
			if name != "" && !httpguts.ValidHeaderFieldName(name) {
				return fmt.Errorf("service: %q is not a header name", name)
			}
		}
	}
	return nil
}

// add fills in all that the settings ask for.
func (r *Reply) add(d *decision, resp *pb.RateLimitResponse) {
	if *r == (Reply{}) {
		return
	}
	o := d.headline()
	if r.Metadata {
		resp.DynamicMetadata = d.metadata(o)
	}
	if o == nil {
		return
	}
	h := headers{}
	remaining := max(o.is.Remaining, 0)
	if o.denied {
		remaining = 0
	}
	left, reset := strconv.FormatInt(remaining, 10), strconv.FormatInt(o.resetSeconds(), 10)
	quota := strconv.FormatUint(uint64(o.shows.Requests), 10)
	if remaining < math.MaxUint32 {
		h.addThree(r.RateLimit, quota, left, reset)
		(*headers)(&resp.RequestHeadersToAdd).addThree(r.Upstream, quota, left, reset)
	}
	if r.XRateLimit {
		at := d.service.cfg.Store.Now()/1_000_000 + o.resetSeconds()
		h.add("X-RateLimit-Limit", quota)
		h.add("X-RateLimit-Remaining", left)
		h.add("X-RateLimit-Reset", strconv.FormatInt(at, 10))
	}
	if r.IETF {
		h.add("RateLimit-Policy", d.policies())
		h.add("RateLimit", quoted(policyName(o.shows))+";r="+left+";t="+reset)
	}
	if resp.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		if r.RetryAfter {
			h.add("Retry-After", reset)
		}
		if r.ProblemBody {
			h.add("Content-Type", "application/problem+json")
			resp.RawBody = d.problem(o)
		}
	}
	resp.ResponseHeadersToAdd = h
}

type headers []*corev3.HeaderValue

func (h *headers) add(key, value string) {
	*h = append(*h, &corev3.HeaderValue{Key: key, Value: value})
}

func (h *headers) addThree(names HeaderNames, quota, left, reset string) {
	if names == (HeaderNames{}) {
		return
	}
	h.add(names.Limit, quota)
	h.add(names.Remaining, left)
	h.add(names.Reset, reset)
}

// policies lists the limits that are enforced on the request, as a structured
// field's list (RFC 9651): "name";q=quota;w=seconds.
func (d *decision) policies() string {
	var items []string
	for _, c := range d.checks {
		if c.outcome.shadow() {
			continue
		}
		item := quoted(policyName(c.limit)) + ";q=" + strconv.FormatUint(uint64(c.limit.Requests), 10) +
			";w=" + strconv.FormatInt(window(c.limit), 10)
		if !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return strings.Join(items, ", ")
}

// policyName is the limit's name or, where it has none, what it says.
func policyName(l *descriptors.Limit) string {
	if l.Name != "" {
		return l.Name
	}
	return strconv.FormatUint(uint64(l.Requests), 10) + "-per-" + strconv.FormatInt(window(l), 10) + "s"
}

// quoted is s as a structured field's string, which holds printable ASCII only.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			b.WriteByte('?')
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
