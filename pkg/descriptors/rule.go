package descriptors

import (
	"slices"
	"strconv"
	"strings"

	"example.org/rls/pkg/algorithms"
)

// Entry is one key and value of a descriptor. An absent value is "".
type Entry struct{ Key, Value string }

// String is the entry as envoyproxy/ratelimit writes it: key_value, or key.
func (e Entry) String() string {
	if e.Value == "" {
		return e.Key
	}
	return e.Key + "_" + e.Value
}

// Charge says what a domain charges for a request that is denied.
type Charge uint8

const (
	// ChargeAlways charges every descriptor, also when the request is denied;
	// fixed windows count denied hits too.
	ChargeAlways Charge = iota
	// ChargeAdmitted decides the request as a whole: when an enforced limit
	// denies, nothing is charged.
	ChargeAdmitted
	// ChargeDenying is ChargeAdmitted, but fixed windows count what they
	// themselves deny. Only a default can say so, rules cannot.
	ChargeDenying
)

// String is always or admitted, as in the rules, or denying.
func (c Charge) String() string {
	return [...]string{"always", "admitted", "denying"}[c]
}

// Position is a place in a rule file. Line and Column count from 1; 0 is
// unknown.
type Position struct {
	File         string
	Line, Column int
}

// String is file:line:column.
func (p Position) String() string {
	s := p.File
	for _, n := range []int{p.Line, p.Column} {
		if n > 0 {
			s += ":" + strconv.Itoa(n)
		}
	}
	return s
}

// Limit is one limit of a rule.
type Limit struct {
	*algorithms.Limit
	Name       string   // what Replaces of other limits refers to; may be ""
	Replaces   []string // names of limits that do not count while this one matches
	Unit       Unit
	Multiplier uint32 // the window is Multiplier × Unit; at least 1

	// WrittenBurst is the burst of the rules; 0 when Spec.Burst is the strategy's
	// default.
	WrittenBurst uint32
}

// Rule is what one descriptor of the rules says about the requests that match
// it. It is immutable.
type Rule struct {
	// Limits has one or several limits, and none when Unlimited.
	Limits    []Limit
	Unlimited bool
	// Name and Replaces are those of an unlimited rule; a limited one has them
	// in each limit.
	Name     string
	Replaces []string

	Shadow bool // decide and count, but never deny
	Quota  bool // counts for quota mode

	// Metadata is what the rules attach for the reply, fit for
	// structpb.NewStruct; nil when there is none.
	Metadata map[string]any
	// Shared has, at the depth of each entry whose values share one counter
	// (share_threshold), the wildcard pattern that stands for the value, and ""
	// elsewhere. It is nil when nothing is shared. See [AppendID].
	Shared []string
	// Path names the rule as the reference does: domain.key_value.key2.
	Path string
	Pos  Position

	// DetailedMetric names the metric by the request's own keys and values.
	DetailedMetric bool
	// Requests is the requests_per_unit that an unlimited rule was written
	// with. It has no effect.
	Requests uint32

	fixed  bool // the metric key is Path whatever the entries are
	levels []level
}

// place sets what follows from the place n of the rule in the tree.
func (r *Rule) place(n *Node) {
	var way []*Node // from the outermost descriptor to n
	for a := n; a.parent != nil; a = a.parent {
		way = append(way, a)
	}
	slices.Reverse(way)
	r.Path, r.Pos, r.fixed = n.path, n.Pos, !r.DetailedMetric
	for i, a := range way {
		if a.Descriptor.Shared {
			if r.Shared == nil {
				r.Shared = make([]string, len(way))
			}
			r.Shared[i] = a.sharedPattern()
		}
		r.fixed = r.fixed && !isPattern(a.Key) && !(a.ValueToMetric && (a.Value == "" || isPattern(a.Value)))
	}
	if r.fixed {
		return
	}
	r.levels = make([]level, len(way))
	for i, a := range way {
		l := level{bare: a.Value == "", shared: a.Descriptor.Shared, valueInKey: a.ValueToMetric}
		if a.HasWildcard() {
			l.pattern = a.String()
		}
		r.levels[i] = l
	}
}

// sharedPattern is the pattern that replaces the value in the name of a shared
// counter. The pattern of a key differs from the patterns of values.
func (d *Descriptor) sharedPattern() string {
	if isPattern(d.Key) {
		return d.Key + "=" + d.Value
	}
	return d.Value
}

// level is what one depth of a rule contributes to its metric key.
type level struct {
	pattern    string // key_value of a wildcard descriptor, else ""
	bare       bool   // the descriptor has no value
	shared     bool   // share_threshold
	valueInKey bool   // value_to_metric
}

// FixedMetricKey reports whether MetricKey is Path whatever the entries are.
func (r *Rule) FixedMetricKey() bool { return r.fixed }

// MetricKey is the name under which the reference counts a request with these
// entries that matched the rule. The entries are those given to [Domain.Match].
//
// A detailed_metric takes the request's own keys and values, value_to_metric
// the value where the rule has a wildcard or no value, and share_threshold
// puts the pattern in place of the value in both.
func (r *Rule) MetricKey(domain string, entries []Entry) string {
	if r.fixed || len(entries) != len(r.levels) {
		return r.Path
	}
	var b strings.Builder
	b.WriteString(domain)
	for i, e := range entries {
		b.WriteByte('.')
		b.WriteString(e.Key)
		v := r.levels[i].metricValue(e, r.DetailedMetric)
		// A detailed metric without a shared pattern keeps the underscore of an
		// empty value.
		if v != "" || r.DetailedMetric && r.Shared == nil {
			b.WriteByte('_')
			b.WriteString(v)
		}
	}
	return b.String()
}

func (l *level) metricValue(e Entry, detailed bool) string {
	switch {
	case l.shared:
		return strings.TrimPrefix(l.pattern, e.Key+"_")
	case detailed || l.valueInKey:
		return e.Value
	case l.pattern != "":
		return strings.TrimPrefix(l.pattern, e.Key+"_")
	case l.bare:
		return ""
	}
	return e.Value
}
