package status

import (
	"fmt"
	"strings"

	"example.org/rls/pkg/descriptors"
)

// words says what a limit admits: "10 per minute, sliding window, per user". The way
// is the descriptors from the outermost to that of the limit's rule.
func words(l *descriptors.Limit, way []*descriptors.Node) string {
	said := []string{amount(l), strings.ReplaceAll(l.Strategy.String(), "_", " ")}
	if l.WrittenBurst > 0 {
		said = append(said, fmt.Sprintf("burst %d", l.WrittenBurst))
	}
	if l.FromFirstHit {
		said = append(said, "from the first hit")
	}
	if l.Extend {
		said = append(said, "extended by each hit")
	}
	if l.MaxDelay > 0 {
		said = append(said, fmt.Sprintf("waits up to %v", l.MaxDelay))
	}
	return strings.Join(append(said, callers(way)), ", ")
}

func amount(l *descriptors.Limit) string {
	requests := fmt.Sprint(l.Requests)
	if l.Share != 0 {
		requests += fmt.Sprintf(" (%s of %d)", l.Share, l.WrittenRequests)
	}
	return requests + " per " + descriptors.Period(l.Unit, l.Multiplier)
}

// callers says whom a limit counts apart: the values of the keys for which the rule takes
// any value or a pattern, unless all values share one counter.
func callers(way []*descriptors.Node) string {
	var keys []string
	for _, n := range way {
		if !n.Descriptor.Shared && (n.Value == "" || n.HasWildcard()) {
			keys = append(keys, n.Key)
		}
	}
	if len(keys) == 0 {
		return "for all together"
	}
	return "per " + strings.Join(keys, " and ")
}
