package envoy

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// problem is the body of a denial in application/problem+json (RFC 9457), with
// the problem type and the member violated-policies of
// draft-ietf-httpapi-ratelimit-headers-11. o must have a headline.
func problem(o *service.Outcome) []byte {
	var violated []string
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; !v.Shadow && v.Decided && !v.Is.Allowed {
			violated = append(violated, policyName(v.Limit))
		}
	}
	body, _ := json.Marshal(struct { // strings and numbers always have a JSON
		Type       string   `json:"type"`
		Title      string   `json:"title"`
		Status     int      `json:"status"`
		Violated   []string `json:"violated-policies"`
		RetryAfter int64    `json:"retry-after"`
	}{
		Type:       "https://iana.org/assignments/http-problem-types#quota-exceeded",
		Title:      "Too many requests: the quota is exceeded",
		Status:     429,
		Violated:   slices.Compact(violated),
		RetryAfter: seconds(o.Statuses[o.Headline].Shown),
	})
	return body
}

// metadata is the reply's dynamic metadata: the request and the metadata of
// the rules that it passed, as envoyproxy/ratelimit has them, and the rule,
// strategy, limit, remaining, retry_after and policy of the headline, if there is one; policy
// only if the store did not decide. borrowed says that a pool has hits of the request. shadow
// lists the limits that are watched, each with the same fields, denied and reservation. grants lists
// the grants until a time that have raised limits.
func metadata(q *service.Request, o *service.Outcome) map[string]any {
	fields := map[string]any{"domain": descriptors.Printable(q.Domain), "descriptors": describe(q)}
	if q.Hits != 0 {
		fields["hitsAddend"] = float64(q.Hits)
	}
	passed := map[string]any{}
	for i := range o.Statuses {
		if s := &o.Statuses[i]; !s.Override && s.Shown != nil && s.Passed() {
			merge(passed, s.Rule.Metadata)
		}
	}
	if len(passed) > 0 {
		fields["metadata"] = passed
	}
	if watched := watched(q, o); len(watched) > 0 {
		fields["shadow"] = watched
	}
	if o.Borrowed() {
		fields["borrowed"] = true
	}
	if o.Reached {
		fields["thresholds"] = o.Thresholds(q.Domain)
	}
	if granted := granted(q, o); len(granted) > 0 {
		fields["grants"] = granted
	}
	if r := o.Reservation(); r != "" {
		fields["reservation"] = r
	}
	if o.Headline < 0 {
		return fields
	}
	s := &o.Statuses[o.Headline]
	addDecision(fields, q, s.Shown, s.Remaining, o.Over)
	return fields
}

// addDecision adds what v has decided.
func addDecision(fields map[string]any, q *service.Request, v *service.Verdict, remaining int64, denied bool) {
	fields["rule"] = v.Name(q.Domain)
	fields["strategy"] = v.Limit.Strategy.String()
	fields["limit"] = float64(v.Limit.Requests)
	fields["remaining"] = float64(remaining)
	if denied {
		fields["retry_after"] = float64(seconds(v))
	}
	if policy := v.ByPolicy(); policy != "" {
		fields["policy"] = policy
	}
}

// granted describes the grants until a time that have raised limits, for structpb.NewStruct.
func granted(q *service.Request, o *service.Outcome) (list []any) {
	for i := range o.Verdicts {
		if v := &o.Verdicts[i]; v.Limit.Raise != nil {
			g := v.Limit.Raise
			list = append(list, map[string]any{"id": g.ID, "rule": v.Name(q.Domain), "grants": g.Words(), "until": g.Until.Format(time.RFC3339)})
		}
	}
	return list
}

// watched describes the decided limits that are watched, for structpb.NewStruct.
func watched(q *service.Request, o *service.Outcome) (list []any) {
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		if !v.Watched || !v.Decided {
			continue
		}
		denied := !v.Is.Allowed
		fields := map[string]any{"denied": denied}
		addDecision(fields, q, v, v.Left(), denied)
		if v.Borrowed() {
			fields["borrowed"] = true
		}
		list = append(list, fields)
	}
	return list
}

// describe lists the request's descriptors with their entries as "key=value", each of both as
// [descriptors.Printable] has it.
func describe(q *service.Request) []any {
	list := make([]any, len(q.Descriptors))
	for i := range q.Descriptors {
		d := &q.Descriptors[i]
		entries := make([]any, len(d.Entries))
		for j, e := range d.Entries {
			entries[j] = descriptors.Printable(e.Key) + "=" + descriptors.Printable(e.Value)
		}
		fields := map[string]any{"entries": entries}
		if d.Limit != nil {
			fields["limit"] = textOf(d.Limit)
		}
		if d.Hits != nil {
			fields["hitsAddend"] = float64(*d.Hits)
		}
		list[i] = fields
	}
	return list
}

// textOf is o in the text format of protobuf, as envoyproxy/ratelimit writes it.
func textOf(o *service.Override) string {
	s := fmt.Sprintf("requests_per_unit:%d unit:%s", o.RequestsPerUnit, o.Unit)
	if o.Multiplier != 1 {
		s += fmt.Sprintf(" unit_multiplier:{value:%d}", o.Multiplier)
	}
	return s
}

// merge adds the fields of src that dst lacks to dst, and merges maps that both
// have. It neither changes src nor puts a map of src into dst.
func merge(dst, src map[string]any) {
	for k, v := range src {
		from, isMap := v.(map[string]any)
		if _, has := dst[k]; !has && isMap {
			dst[k] = map[string]any{}
		} else if !has {
			dst[k] = v
		}
		if into, both := dst[k].(map[string]any); both && isMap {
			merge(into, from)
		}
	}
}
