package rules

import (
	"fmt"
	"slices"
	"strings"

	"example.org/rls/pkg/descriptors"
)

// Dump lists every limit of a tree on a line of its own as /rlconfig of
// envoyproxy/ratelimit does, sorted. Fields that envoyproxy/ratelimit does not
// have stand at the end of a line where a rule uses them, and so does Options.Share
// with the amount that is written in the rule.
func Dump(t *descriptors.Tree) string {
	var lines []string
	t.Each(func(_ *descriptors.Domain, r *descriptors.Rule) {
		line := func(unit descriptors.Unit, requests uint32, own string) {
			lines = append(lines, fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t%s\n",
				r.Path, unit, requests, r.Shadow, r.Quota, own))
		}
		if r.Unlimited {
			line(descriptors.UnitUnknown, r.Requests, "")
		}
		for i := range r.Limits {
			l := &r.Limits[i]
			own := printOwn(l)
			if l.Share != 0 {
				own += fmt.Sprintf(", limit_share: %s of %d", l.Share, l.WrittenRequests)
			}
			line(l.Unit, l.Requests, own)
		}
	})
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func printOwn(l *descriptors.Limit) string {
	var b strings.Builder
	for i := range fields {
		if f := &fields[i]; f.print != nil {
			if text := f.print(l); text != "" {
				fmt.Fprintf(&b, ", %s: %s", f.name, text)
			}
		}
	}
	return b.String()
}
