package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// Dump lists every limit of a tree on a line of its own as /rlconfig of
// envoyproxy/ratelimit does, sorted. Fields that envoyproxy/ratelimit does not
// have stand at the end of a line where a rule uses them, and so do Options.Share
// with the amount that is written in the rule, and the places of fields from overlays.
func Dump(t *descriptors.Tree) string {
	var lines []string
	t.EachWithPools(func(_ *descriptors.Domain, r *descriptors.Rule) {
		masks := printMasks(r)
		line := func(unit descriptors.Unit, requests uint32, shadow bool, own string) {
			lines = append(lines, fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t%s%s\n",
				r.Path, unit, requests, shadow, r.Quota, masks, own))
		}
		if r.Unlimited {
			line(descriptors.UnitUnknown, r.Requests, r.Shadow, printGiven(inLimit, target{limit: withPlan(&limit{}, r)}, target{limit: &limit{}})+printLaid(r.Laid))
		}
		for i := range r.Limits {
			l := &r.Limits[i]
			plain := limit{Limit: descriptors.Limit{Multiplier: 1}, maxBorrow: algorithms.Whole}
			own := printGiven(inLimit, target{limit: written(r, l)}, target{limit: &plain})
			if l.Share != 0 {
				own += fmt.Sprintf(", limit_share: %s of %d", l.Share, l.WrittenRequests)
			}
			line(l.Unit, l.Requests, r.Shadow || l.Shadow, own+printLaid(l.Laid))
		}
	})
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// printLaid prints where fields come from that overlays have set.
func printLaid(laid descriptors.Laid) string {
	if laid == nil {
		return ""
	}
	return ", overlay: " + laid.String()
}

// printMasks prints the masks of a rule's descriptors, from the outermost.
func printMasks(r *descriptors.Rule) string {
	var b strings.Builder
	for _, n := range r.Shared {
		switch m := n.Mask; {
		case m.IPv4 > 0 && m.IPv6 > 0:
			fmt.Fprintf(&b, ", mask: {ipv4: %d, ipv6: %d}", m.IPv4, m.IPv6)
		case m.IPv4 > 0:
			fmt.Fprintf(&b, ", mask: {ipv4: %d}", m.IPv4)
		case m.IPv6 > 0:
			fmt.Fprintf(&b, ", mask: {ipv6: %d}", m.IPv6)
		}
	}
	return b.String()
}

// printGiven prints the fields of a place whose values in t differ from those in plain, of a limit
// only those that envoyproxy/ratelimit lacks.
func printGiven(where place, t, plain target) string {
	var b strings.Builder
	for i := range table {
		if f := &table[i]; f.in == where && (f.own || where != inLimit) {
			if text := f.Type.Append(nil, t); !bytes.Equal(text, f.Type.Append(nil, plain)) {
				fmt.Fprintf(&b, ", %s: %s", f.Name, text)
			}
		}
	}
	return b.String()
}

// withPlan gives l the fields that r has for all its limits.
func withPlan(l *limit, r *descriptors.Rule) *limit {
	l.plan = planName(r.Plan)
	if t := r.Table; t != nil {
		l.table = tableOf{file: t.Name, entry: t.Key, rows: t.Rows}
	}
	return l
}

// written is a limit as its rule says it.
func written(r *descriptors.Rule, l *descriptors.Limit) *limit {
	as := &limit{Limit: *l, spec: l.Spec, unit: l.Unit.String(), maxBorrow: algorithms.Whole}
	if b := l.Borrow; b != nil {
		as.lender, as.maxBorrow = poolName(b.From), b.Most
	}
	return withPlan(as, r)
}

// contents implements [descriptors.Contents].
func contents(b []byte, d *descriptors.Domain, n *descriptors.Node) []byte {
	if n == nil {
		as := file{domain: d.Name, lenders: d.Pools}
		as.charge.value, as.onError.value = d.Charge, d.Default.OnError
		return appendFields(b, inFile, target{file: &as})
	}
	own := descriptor{Descriptor: n.Descriptor}
	if n.Rule == nil {
		return appendFields(b, inDescriptor, target{descriptor: &own})
	}
	own.rule = *n.Rule
	b = appendFields(b, inDescriptor, target{descriptor: &own})
	variants := n.Rule.Variants()
	slices.SortStableFunc(variants[1:], func(v, w *descriptors.Rule) int { return cmp.Compare(v.Plan, w.Plan) })
	for _, v := range variants {
		b = appendRule(b, v)
	}
	return b
}

// appendRule appends the names and values of the fields of r's limits to b.
func appendRule(b []byte, r *descriptors.Rule) []byte {
	if r.Unlimited {
		l := limit{unlimited: true, maxBorrow: algorithms.Whole, spec: algorithms.Spec{Requests: r.Requests}, Limit: descriptors.Limit{Name: r.Name, Replaces: r.Replaces}}
		b = appendFields(b, inLimit, target{limit: withPlan(&l, r)})
	}
	for i := range r.Limits {
		b = appendLimit(b, r, &r.Limits[i])
	}
	return b
}

// appendLimit appends the names and values of the fields of a limit of r to b.
func appendLimit(b []byte, r *descriptors.Rule, l *descriptors.Limit) []byte {
	as := written(r, l)
	as.spec.Burst = as.WrittenBurst
	return appendFields(b, inLimit, target{limit: as})
}

// appendFields appends the names and values of the fields of a place to b.
func appendFields(b []byte, where place, t target) []byte {
	for i := range table {
		if f := &table[i]; f.in == where && f.Type.Append != nil {
			b = f.Type.Append(append(append(append(b, ' '), f.Name...), '='), t)
		}
	}
	return b
}
