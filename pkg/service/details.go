package service

import (
	"encoding/json"
	"slices"

	"google.golang.org/protobuf/types/known/structpb"
)

// problem is the body of a denial: RFC 9457 with the problem type and the
// extension violated-policies of draft-ietf-httpapi-ratelimit-headers-11.
func (d *decision) problem(o *outcome) []byte {
	var violated []string
	for _, c := range d.checks {
		if !c.outcome.shadow() && !c.is.Allowed {
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
// the rules that it passed, as envoyproxy/ratelimit has it, and of the limit
// that headers describe the rule, strategy, limit, remaining and retry_after.
func (d *decision) metadata(o *outcome) *structpb.Struct {
	fields := map[string]any{"domain": d.request.Domain, "descriptors": d.describe()}
	if d.request.HitsAddend != 0 {
		fields["hitsAddend"] = float64(d.request.HitsAddend)
	}
	passed := map[string]any{}
	for i := range d.outcomes {
		if p := &d.outcomes[i]; p.overrides == nil && p.shows != nil && (!p.denied || p.shadow()) {
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
		fields["remaining"] = float64(o.is.Remaining)
		if o.denied {
			fields["remaining"] = float64(0)
			fields["retry_after"] = float64(o.resetSeconds())
		}
	}
	s, err := structpb.NewStruct(fields)
	if err != nil { // bytes that are no UTF-8: strings in protobuf always are
		return nil
	}
	return s
}

// ruleName is the limit's own name, else its rule's path.
func (d *decision) ruleName(o *outcome) string {
	switch {
	case o.shows.Name != "":
		return o.shows.Name
	case o.overrides != nil:
		return d.request.Domain + ".override"
	}
	return o.rule.Path
}

// describe writes the request's descriptors as entries "key=value".
func (d *decision) describe() []any {
	list := make([]any, 0, len(d.request.Descriptors))
	for _, desc := range d.request.Descriptors {
		entries := make([]any, 0, len(desc.GetEntries()))
		for _, e := range desc.GetEntries() {
			entries = append(entries, e.GetKey()+"="+e.GetValue())
		}
		fields := map[string]any{"entries": entries}
		if desc.GetLimit() != nil {
			fields["limit"] = desc.Limit.String()
		}
		if desc.GetHitsAddend() != nil {
			fields["hitsAddend"] = float64(desc.HitsAddend.GetValue())
		}
		list = append(list, fields)
	}
	return list
}

// merge adds what src has to dst; what dst already has stays, maps in both are
// merged. src is never changed nor shared.
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
