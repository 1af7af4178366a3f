package envoy

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// Reply chooses the headers, the body and the metadata of replies.
//
// RateLimit-Policy and the body name several limits; the others describe one limit:
// the denying limit with the longest wait if the request is denied, otherwise the limit
// with the least remaining. A limit in shadow mode is never described.
type Reply struct {
	// RateLimit names envoyproxy/ratelimit's three headers for the client.
	RateLimit HeaderNames `kong:"-"`
	// Upstream names the same three headers for the upstream.
	Upstream HeaderNames `kong:"-"`
	// Metadata adds dynamic_metadata: the request, the metadata of the rules
	// that it passed, and the limit.
	Metadata bool `kong:"-"`
	// IETF adds RateLimit-Policy and RateLimit of
	// draft-ietf-httpapi-ratelimit-headers-11.
	IETF bool `name:"limit-ietf-headers-enabled" env:"LIMIT_IETF_HEADERS_ENABLED" default:"false" help:"Add RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11)."`
	// XRateLimit adds X-RateLimit-Limit, -Remaining and -Reset, the last in
	// seconds since the Unix epoch.
	XRateLimit bool `name:"limit-x-ratelimit-headers-enabled" env:"LIMIT_X_RATELIMIT_HEADERS_ENABLED" default:"false" help:"Add X-RateLimit-Limit, -Remaining and -Reset (seconds since the Unix epoch)."`
	// RetryAfter adds Retry-After in seconds (RFC 9110, 10.2.3) to denials.
	RetryAfter bool `name:"limit-retry-after-header-enabled" env:"LIMIT_RETRY_AFTER_HEADER_ENABLED" default:"false" help:"Add Retry-After, in seconds, to denials."`
	// Policy adds x-ratelimit-policy with the policy of the limit, if that decided
	// and not the store.
	Policy bool `name:"limit-policy-header-enabled" env:"LIMIT_POLICY_HEADER_ENABLED" default:"false" help:"Add x-ratelimit-policy (allow, deny, local, error) where a failure policy decided."`
	// ProblemBody gives denials a body in application/problem+json (RFC 9457) of
	// the draft's problem type quota-exceeded.
	ProblemBody bool `name:"limit-problem-body-enabled" env:"LIMIT_PROBLEM_BODY_ENABLED" default:"false" help:"Give denials an application/problem+json body (RFC 9457)."`
}

// HeaderNames names three headers, which are valid in HTTP. If all are empty, none is sent.
type HeaderNames struct{ Limit, Remaining, Reset string }

// extras are the headers, the body and the metadata of a reply.
type extras struct {
	response []descriptors.Header // for the client
	upstream []descriptors.Header // for the upstream
	body     []byte
	metadata map[string]any // fit for structpb.NewStruct; nil if there is none
}

// extras makes the headers, the body and the metadata that r chooses.
func (r *Reply) extras(q *service.Request, o *service.Outcome) extras {
	var e extras
	switch {
	case o.Beyond:
		e.metadata = map[string]any{"domain": descriptors.Printable(q.Domain), "beyond_caps": q.Beyond}
	case r.Metadata:
		e.metadata = metadata(q, o)
	}
	if o.Headline < 0 {
		return e
	}
	s := &o.Statuses[o.Headline]
	add := func(name, value string) {
		e.response = append(e.response, descriptors.Header{Name: name, Value: value})
	}
	left, reset := strconv.FormatInt(s.Remaining, 10), strconv.FormatInt(seconds(s.Shown), 10)
	quota := strconv.FormatUint(uint64(s.Shown.Limit.Requests), 10)
	if s.Remaining < math.MaxUint32 {
		e.response = r.RateLimit.three(quota, left, reset)
		e.upstream = r.Upstream.three(quota, left, reset)
	}
	if r.XRateLimit {
		add("X-RateLimit-Limit", quota)
		add("X-RateLimit-Remaining", left)
		add("X-RateLimit-Reset", strconv.FormatInt(o.At/1_000_000+seconds(s.Shown), 10))
	}
	if r.IETF {
		add("RateLimit-Policy", policies(o))
		add("RateLimit", quoted(policyName(s.Shown.Limit))+";r="+left+";t="+reset)
	}
	if policy := s.Shown.ByPolicy(); r.Policy && policy != "" {
		add("x-ratelimit-policy", policy)
	}
	if o.Over {
		if r.RetryAfter {
			add("Retry-After", reset)
		}
		if r.ProblemBody {
			add("Content-Type", "application/problem+json")
			e.body = problem(o)
		}
	}
	e.upstream = append(e.upstream, o.Headers...)
	e.response = append(e.response, o.ResponseHeaders...)
	return e
}

// three returns envoyproxy/ratelimit's three headers, or none if they are switched
// off.
func (n HeaderNames) three(quota, left, reset string) []descriptors.Header {
	if n == (HeaderNames{}) {
		return nil
	}
	return []descriptors.Header{{Name: n.Limit, Value: quota}, {Name: n.Remaining, Value: left}, {Name: n.Reset, Value: reset}}
}

// policies lists the limits that are enforced on the request as a list of
// structured fields (RFC 9651): "name";q=quota;w=seconds.
func policies(o *service.Outcome) string {
	var items []string
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if v.Shadow {
			continue
		}
		window := windowSeconds(v.Limit)
		if start, end, ok := v.Limit.Period(o.At); ok {
			window = int64(end.Sub(start) / time.Second)
		}
		item := quoted(policyName(v.Limit)) + ";q=" + strconv.FormatUint(uint64(v.Limit.Requests), 10) +
			";w=" + strconv.FormatInt(window, 10)
		if !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return strings.Join(items, ", ")
}

// policyName is the limit's name or, if it has none, its amount and window: 5-per-60s,
// 5-per-calendar-month.
func policyName(l *descriptors.Limit) string {
	if l.Name != "" {
		return l.Name
	}
	window := strconv.FormatInt(windowSeconds(l), 10) + "s"
	if l.Calendar.On {
		window = strings.ReplaceAll(l.Words(), " ", "-")
	}
	return strconv.FormatUint(uint64(l.Requests), 10) + "-per-" + window
}

// quoted is s as a string of structured fields, which may have printable ASCII
// only; other bytes become '?'.
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

func windowSeconds(l *descriptors.Limit) int64 { return int64(l.Window / time.Second) }
