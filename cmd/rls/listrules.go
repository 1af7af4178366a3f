package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/status"
)

const listRulesHelp = `It prints what the page shows as Rules: the rules that a running process has in force, each
with its limits, the requests of the last 15 minutes, the part of them that was denied, the
requests a second, and its place in a file. With --fleet the counts are sums, and a rule that
replicas have with different limits has a row for each, with the replica.

Exit codes:
  0  the rules are printed, or none matches; with --fleet also if some replicas do not answer
  1  the admin API refused, or could not be reached
  2  a flag is wrong, or a file cannot be read

Examples:
  rls rules --token-file ops.token
  rls rules plan=free --fleet --addr rls.example:6071`

type listRulesCmd struct {
	Text   []string `arg:"" optional:"" help:"Words that the path, the entries, the limits or the place of a rule have; without them all rules are shown."`
	N      int      `name:"n" default:"1000" help:"Most rules, 1 to 1000."`
	Offset int      `default:"0" help:"Matching rules to leave out, in the order of their files."`

	Addr string `default:"localhost:6071" help:"Where the admin API listens: HOST:PORT, or unix:PATH."`
	fleetFlag
	adminAccess
	adminAnswer
}

// Run prints the rules.
func (c *listRulesCmd) Run(ctx context.Context, k *kong.Kong) error {
	const most = 1000
	switch {
	case c.N < 1 || c.N > most:
		return cli.UsageError("--n is %d: want 1 to %d", c.N, most)
	case c.Offset < 0:
		return cli.UsageError("--offset is %d: want at least 0", c.Offset)
	}
	query := url.Values{"q": {strings.Join(c.Text, " ")}, "n": {strconv.Itoa(c.N)}, "offset": {strconv.Itoa(c.Offset)}}
	c.add(query)
	var list status.Listing
	if err := c.post(ctx, c.Addr, c.Timeout, "/v1/rules?"+query.Encode(), nil, &list); err != nil {
		return err
	}
	warnOf(k.Stderr, list.Replicas, notAnswered)
	return c.Write(k.Stdout, &list, func(w io.Writer) error {
		_, err := io.WriteString(w, rulesText(&list, c.Offset))
		return err
	})
}

// rulesText is a page of rules after the first offset, for a person.
func rulesText(l *status.Listing, offset int) string {
	var b bytes.Buffer
	if l.Differ {
		b.WriteString("Replicas have different rules in force:\n")
		for _, r := range l.Replicas {
			if r.OK {
				fmt.Fprintf(&b, "  %s  %s\n", terminal.Visible(r.Hash), terminal.Visible(r.Address))
			}
		}
	}
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(l.Rules) > 0 {
		_, _ = fmt.Fprintln(columns, "RULE\tLIMITS\tREQUESTS\tDENIED\tRATE/S\tPLACE")
	}
	for i := range l.Rules {
		r := &l.Rules[i]
		limits := limitsOf(r)
		_, _ = fmt.Fprintf(columns, "%s\t%s\t%d\t%d%s\t%.1f\t%s:%d", terminal.Visible(r.Rule), limits[0],
			r.Requests, r.Denied, share(r.Denied, r.Requests), r.Rate, terminal.Visible(r.File), r.Line)
		if r.Replica != "" {
			_, _ = fmt.Fprintf(columns, ", only %s", terminal.Visible(r.Replica))
		}
		_, _ = fmt.Fprintln(columns)
		for _, more := range limits[1:] {
			_, _ = fmt.Fprintf(columns, "\t%s\t\t\t\t\n", more)
		}
	}
	_ = columns.Flush()
	fmt.Fprintf(&b, "%d of %d rules", l.Matched, l.Total)
	if shown := len(l.Rules); shown < l.Matched && shown > 0 {
		fmt.Fprintf(&b, ", %d to %d are shown", offset+1, offset+shown)
	}
	b.WriteString("\n")
	return b.String()
}

// limitsOf has the limits of a rule in words, at least one, the last with what else counts.
func limitsOf(r *status.ListingRule) (all []string) {
	for _, l := range r.Limits {
		words := l.Words
		if l.Name != "" {
			words += " (" + l.Name + ")"
		}
		all = append(all, terminal.Visible(words))
	}
	if r.Unlimited {
		all = append(all, "unlimited")
	}
	if len(all) == 0 {
		all = []string{"none"}
	}
	last := &all[len(all)-1]
	if r.Shadow {
		*last += ", shadow"
	}
	if r.Quota {
		*last += ", quota"
	}
	return all
}
