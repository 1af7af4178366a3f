package service

import (
	"encoding/json"
	"fmt"
	"slices"

	"example.org/rls/pkg/descriptors"
)

// problem is the body of a denial in application/problem+json (RFC 9457), with
// the problem type and the member violated-policies of
// draft-ietf-httpapi-ratelimit-headers-11. o is the headline.
func (d *decision) problem(o *outcome) []byte {
	var violated []string
	for _, c := range d.checks {
		if !c.outcome.shadow() && c.denies() {
			violated = append(violated, policyName(c.limit))
		}
	}
	body, err := json.Marshal(struct {
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
		RetryAfter: o.resetSeconds(),
	})
	if err != nil {
		panic("service: marshal a problem of strings and numbers: " + err.Error())
	}
	return body
}

// metadata is the reply's dynamic metadata: the request and the metadata of
// the rules that it passed, as envoyproxy/ratelimit has them, and the rule,
// strategy, limit, remaining, retry_after and policy of the headline o, if there
// is one; policy only if the store did not decide.
func (d *decision) metadata(o *outcome) map[string]any {
	fields := map[string]any{"domain": d.request.domain, "descriptors": d.describe()}
	if d.request.hitsAddend != 0 {
		fields["hitsAddend"] = float64(d.request.hitsAddend)
	}
	passed := map[string]any{}
	for i := range d.outcomes {
		if p := &d.outcomes[i]; p.overrides == nil && p.shows != nil && p.passed() {
			merge(passed, p.rule.Metadata)
		}
	}
	if len(passed) > 0 {
		fields["metadata"] = passed
	}
	if o != nil {
		fields["rule"] = d.ruleName(o)
		fields["strategy"] = o.shows.Strategy.String()
		fields["limit"] = float64(o.shows.Requests)
		fields["remaining"] = float64(o.remaining())
		if d.over {
			fields["retry_after"] = float64(o.resetSeconds())
		}
		if !o.counted {
			fields["policy"] = o.shows.OnError.String()
		}
	}
	return fields
}

// ruleName is the name of the limit that o shows, else the path of its rule.
func (d *decision) ruleName(o *outcome) string {
	switch {
	case o.shows.Name != "":
		return o.shows.Name
	case o.overrides != nil:
		return overridePath(d.request.domain)
	}
	return o.rule.Path
}

// overridePath names an override, which has no rule of its own.
func overridePath(domain string) string { return domain + ".override" }

// describe lists the request's descriptors with their entries as "key=value".
func (d *decision) describe() []any {
	list := make([]any, len(d.request.descriptors))
	for i := range d.request.descriptors {
		asked := &d.request.descriptors[i]
		entries := make([]any, len(asked.entries))
		for j, e := range asked.entries {
			entries[j] = e.Key + "=" + e.Value
		}
		fields := map[string]any{"entries": entries}
		if asked.override.given {
			fields["limit"] = asked.override.String()
		}
		if asked.ownHits {
			fields["hitsAddend"] = float64(asked.hits)
		}
		list[i] = fields
	}
	return list
}

// String is o in the text format of protobuf, as envoyproxy/ratelimit writes it.
func (o *override) String() string {
	s := fmt.Sprintf("requests_per_unit:%d unit:%s", o.requests, descriptors.Unit(o.unit))
	if o.multiplier != 1 {
		s += fmt.Sprintf(" unit_multiplier:{value:%d}", o.multiplier)
	}
	return s
}

// merge adds the fields of src that dst lacks to dst, and merges maps that both
// have. It neither changes src nor puts a map of src into dst.
func merge(dst, src map[string]any) {
	for k, v := range src {
		have, ok := dst[k]
		from, isMap := v.(map[string]any)
		switch {
		case !ok && isMap:
			own := map[string]any{}
			merge(own, from)
			dst[k] = own
		case !ok:
			dst[k] = v
		case isMap:
			if into, ok := have.(map[string]any); ok {
				merge(into, from)
			}
		}
	}
}
