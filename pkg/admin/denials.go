package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/denials"
)

var errNoDenials = status.Error(codes.Unimplemented, "this process remembers no denials because of DENIALS_KEEP=0")

// maxDenials is the most rows of an answer of /v1/denials.
const maxDenials = 10_000

func (a *API) denials(_ context.Context, q *Query) (any, error) {
	if a.options.Denials == nil {
		return nil, errNoDenials
	}
	if q.Follow {
		return nil, invalid("follow is for a stream: want the header Accept: text/event-stream")
	}
	list := a.options.Denials.List
	if q.Group {
		list = a.options.Denials.Groups
	}
	l := list(denials.Query{Since: q.from(), Rule: q.Rule, Text: q.Q}, q.N)
	if len(l.Denials)+len(l.Groups) == 0 && q.Rule != "" {
		return l, a.knowsRule(q.Rule)
	}
	return l, nil
}

// DenialsOfAll is the document of GET /v1/denials.
type DenialsOfAll struct {
	denials.List
	Replicas []client.Replica `json:"replicas,omitempty"` // only of a fleet
}

func mergeDenials(q *Query, all []client.Answer[denials.List], replicas []client.Replica) any {
	sum := DenialsOfAll{List: denials.List{Sampled: 1}, Replicas: replicas}
	for i := range all {
		l := &all[i].Document
		sum.Kept, sum.Sampled = sum.Kept+l.Kept, max(sum.Sampled, l.Sampled)
		sum.Remembered = later(sum.Remembered, l.Remembered)
		if l.From != nil && (sum.From == nil || l.From.Before(*sum.From)) {
			sum.From = l.From
		}
	}
	if q.Group {
		sum.Groups = mergeGroups(all, q.N, func(l *denials.List) []denials.Group { return l.Groups })
		return sum
	}
	sum.Denials = newest(all, q.N, func(l *denials.List) []denials.Denial { return l.Denials },
		func(d *denials.Denial) (time.Time, *string) { return d.Time, &d.Replica })
	return sum
}

// mergeGroups adds the replicas' groups of a counter together, and returns the groups of the n
// counters that were denied last.
func mergeGroups[D any](all []client.Answer[D], n int, groups func(*D) []denials.Group) []denials.Group {
	counter := func(g *denials.Group) [3]string {
		return [3]string{idOf(g.Domain, g.Entries), g.Rule, fmt.Sprint(g.Limit, g.Window, g.Name)}
	}
	sum := client.Join(client.Rows(all, groups), counter, func(of, g *denials.Group) {
		earlier := max(of.Earlier, g.Earlier)
		of.Count += g.Count - of.Earlier - g.Earlier + earlier
		if of.Earlier = earlier; g.First.Before(of.First) {
			of.First = g.First
		}
		if g.Last.After(of.Last) {
			of.Last, of.Wait = g.Last, g.Wait
		}
	})
	slices.SortStableFunc(sum, func(a, b denials.Group) int { return b.Last.Compare(a.Last) })
	return sum[:min(n, len(sum))]
}

// followDenials sends new denials until the caller goes, or may no longer ask.
func (a *API) followDenials(ctx context.Context, q *Query, send send) error {
	switch {
	case a.options.Denials == nil:
		return errNoDenials
	case q.Since != nil || q.N != 0 || q.Fleet:
		return invalid("a stream has the new denials of one replica: want neither since nor n nor fleet")
	}
	following := a.options.Denials.Follow(ctx, denials.Query{Rule: q.Rule, Text: q.Q})
	if err := send(nil); err != nil {
		return err
	}
	for denial := range following {
		if err := send(denial); err != nil {
			return err
		}
	}
	return nil
}
