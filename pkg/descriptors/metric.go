package descriptors

import (
	"strings"

	"example.org/rls/pkg/descriptors/match"
)

// MetricKey is the name under which envoyproxy/ratelimit counts a request whose
// entries matched the rule. Keys and values are [Printable]; domain must be.
//
// With detailed_metric it has the request's keys and values; with
// value_to_metric the request's value where the rule has a wildcard or no value.
// With share_threshold the pattern or the match replaces the value in both, and with mask the
// network does.
func (r *Rule) MetricKey(domain string, entries []Entry) string {
	if r.FixedMetricKey || len(entries) != len(r.way) {
		return r.Path
	}
	var b strings.Builder
	b.WriteString(domain)
	for i, e := range entries {
		b.WriteByte('.')
		b.WriteString(Printable(e.Key))
		n := r.way[i]
		if own := (r.DetailedMetric || n.ValueToMetric) && !n.Descriptor.Shared; n.Match != nil && !own && !match.IsPattern(n.Key) {
			b.WriteString(Printable(strings.TrimPrefix(n.String(), n.Key)))
			continue
		}
		v := Printable(n.metricValue(e, r.DetailedMetric))
		// A detailed metric without a shared pattern keeps the underscore of an
		// empty value.
		if v != "" || r.DetailedMetric && r.Shared == nil {
			b.WriteByte('_')
			b.WriteString(v)
		}
	}
	return b.String()
}

// metricValue is the value of e in a metric key.
func (n *Node) metricValue(e Entry, detailed bool) string {
	switch {
	case (detailed || n.ValueToMetric) && !n.Descriptor.Shared:
		return n.Mask.Of(e.Value)
	case match.IsPattern(n.Key):
		return strings.TrimPrefix(n.String(), e.Key+"_")
	}
	return n.Value
}
