package commands

import (
	"context"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/status"
)

const listRulesHelp = `It prints what the page shows as Rules: the rules that a running process has in force, each
with its limits, the requests of the last 15 minutes, the part of them that was denied, the
requests a second, and its place in a file. With --fleet the counts are sums, and a rule that
replicas have with different limits has a row for each, with the replica.

Exit codes:
  0  the rules are printed, or none matches; with --fleet also if some replicas do not answer` + exitRefused + `
  rls rules --token-file ops.token
  rls rules plan=free --fleet --addr rls.example:6071`

type listRulesCmd struct {
	Text   []string `arg:"" optional:"" help:"Words that a rule has; without them all rules are shown. They can be in its path, entries, limits or place."`
	N      int      `name:"n" default:"1000" min:"1" max:"1000" help:"Most rules, 1 to 1000."`
	Offset int      `default:"0" min:"0" help:"Matching rules to leave out, in the order of their files."`

	fleetAsk
}

func (c *listRulesCmd) Run(ctx context.Context, k *kong.Kong) error {
	query := admin.Query{Q: strings.Join(c.Text, " "), N: c.N, Offset: c.Offset, Fleet: c.Fleet}
	var list status.Listing
	return c.show(ctx, k, "/v1/rules", query, &list, &list.Replicas, func(s *sheet) { s.addRules(&list, c.Offset) })
}

// addRules adds a page of rules after the first offset.
func (s *sheet) addRules(l *status.Listing, offset int) {
	if l.Differ {
		s.addf("Replicas have different rules in force:\n")
		for _, r := range l.Replicas {
			s.addIf(r.OK, "  %s  %s\n", r.Hash, r.Address)
		}
	}
	s.addIf(len(l.Rules) > 0, "RULE\tLIMITS\tREQUESTS\tDENIED\tRATE/S\tPLACE\n")
	for i := range l.Rules {
		r := &l.Rules[i]
		limits := limitsOf(r)
		s.addf("%s\t%s\t%d\t%d%s\t%.1f\t%s:%d", r.Rule, limits[0],
			r.Requests, r.Denied, share(r.Denied, r.Requests), r.Rate, r.File, r.Line)
		s.addIf(r.Replica != "", ", only %s", r.Replica)
		s.addf("\n")
		for _, more := range limits[1:] {
			s.addf("\t%s\t\t\t\t\n", more)
		}
	}
	s.addf("%d of %d rules", l.Matched, l.Total)
	shown := len(l.Rules)
	s.addIf(0 < shown && shown < l.Matched, ", %d to %d are shown", offset+1, offset+shown)
	s.addf("\n")
}

// limitsOf has the limits of a rule in words, at least one, the last with what else counts.
func limitsOf(r *status.ListingRule) (all []string) {
	for _, l := range r.Limits {
		words := l.Words
		if l.Name != "" {
			words += " (" + l.Name + ")"
		}
		if l.Overlay != nil {
			words += " [" + l.Overlay.String() + "]"
		}
		if l.PolicyDecides != "" {
			words += ", " + l.OnError + " decides now"
			if l.PolicyDecides == "some" {
				words += " for some keys"
			}
		}
		all = append(all, words)
	}
	if r.Unlimited {
		all = append(all, "unlimited")
	}
	if len(all) == 0 {
		all = []string{"none"}
	}
	last := &all[len(all)-1]
	if r.Plan != "" {
		*last += ", plan " + r.Plan
	}
	switch {
	case r.ByRow:
		*last += " of table " + r.Table
	case r.Table != "":
		*last += fmt.Sprintf(", table %s of %d rows", r.Table, r.Rows)
	}
	for i, is := range []bool{r.Shadow, r.Quota, r.Pool} {
		if is {
			*last += [...]string{", shadow", ", quota", ", pool"}[i]
		}
	}
	return all
}
