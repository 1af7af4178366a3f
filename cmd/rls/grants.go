package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
)

const grantsHelp = `It lists the grants that the process has made since its start and that are not used up, ended
or reset, the newest first. Several grants to one counter are one row: HITS is what the last
one gave and what was left of those before it, LEFT is what is not used.

Exit codes:
  0  the grants are printed, or there are none; also if some replicas do not answer
  1  the admin API refused or could not be reached, or the store cannot tell what is left
  2  a flag is wrong, or a file cannot be read

Examples:
  rls grants --token-file ops.token
  rls grants --fleet --addr rls.example:6071 --format json`

type grantsCmd struct {
	Addr string `default:"localhost:6071" help:"Where the admin API listens: HOST:PORT, or unix:PATH."`
	fleetFlag
	adminAccess
	adminAnswer
}

// Run prints the grants.
func (c *grantsCmd) Run(ctx context.Context, k *kong.Kong) error {
	query := url.Values{}
	c.add(query)
	var in admin.Grants
	if err := c.post(ctx, c.Addr, c.Timeout, "/v1/grants?"+query.Encode(), nil, &in); err != nil {
		return err
	}
	warnOf(k.Stderr, in.Replicas, notAnswered)
	return c.Write(k.Stdout, &in, func(w io.Writer) error {
		if len(in.Grants) == 0 {
			_, err := fmt.Fprintln(w, "no grant is in force")
			return err
		}
		columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(columns, "TIME\tWHO\tHITS\tLEFT\tENDS\tRULE\tKEY")
		for _, g := range in.Grants {
			_, _ = fmt.Fprintf(columns, "%s\t%s\t%d\t%d\t%s\t%s\t%s%s\n", g.Time.Local().Format(time.DateTime), terminal.Visible(g.Who), g.Hits, g.Left,
				g.Ends.Local().Format(time.DateTime), terminal.Visible(g.Rule), terminal.Visible(g.Key), onReplica(g.Replica))
		}
		return columns.Flush()
	})
}
