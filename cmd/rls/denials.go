package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
)

const denialsHelp = `It shows the denials that a running process remembers (DENIALS_KEEP), the newest first:
when, the rule, the key, the limit, and how long the same request had to wait. With
--follow it prints new ones as they come, until Ctrl-C. Above 2,000 denials a second a
row stands for several, and says so.

Exit codes:
  0  the denials are printed, also if there are none; or Ctrl-C ended --follow; with --fleet
     also if some replicas do not answer
  1  the admin API refused, or could not be reached, or ended the stream
  2  a flag is wrong, or a file cannot be read

Examples:
  rls denials ann --since 1h --token-file ops.token
  rls denials --follow --rule shop.plan_free.user --format json`

type denialsCmd struct {
	Text string `arg:"" optional:"" help:"A part of a key or a value; without it all keys are shown."`

	Since  *time.Duration `placeholder:"DURATION" help:"How far back, such as 1h; without it as far as the process remembers."`
	Rule   string         `placeholder:"RULE" help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	N      *int           `name:"n" help:"Most denials, 1 to 10000; 100 without it."`
	Follow bool           `help:"Print new denials as they come, until Ctrl-C. With --format=json each is a document on its own line."`

	Addr string `default:"localhost:6071" help:"Where the admin API listens: HOST:PORT, or unix:PATH."`
	fleetFlag
	adminAccess
	adminAnswer
}

// Run prints the denials.
func (c *denialsCmd) Run(ctx context.Context, k *kong.Kong) error {
	query := url.Values{"q": {c.Text}, "rule": {c.Rule}}
	switch {
	case c.Follow && (c.Since != nil || c.N != nil):
		return cli.UsageError("--since and --n are for past denials: want neither with --follow")
	case c.Follow && c.Fleet:
		return cli.UsageError("--fleet is for past denials: want it without --follow, which follows one process")
	case c.Since != nil && *c.Since <= 0:
		return cli.UsageError("--since is %v: want how far back, such as 1h", *c.Since)
	case c.N != nil && (*c.N < 1 || *c.N > admin.MaxDenials):
		return cli.UsageError("--n is %d: want 1 to %d", *c.N, admin.MaxDenials)
	}
	if c.Since != nil {
		query.Set("since", c.Since.String())
	}
	if c.N != nil {
		query.Set("n", strconv.Itoa(*c.N))
	}
	c.add(query)
	if c.Follow {
		query.Set("follow", "true")
		return c.follow(ctx, k.Stdout, "/v1/denials?"+query.Encode())
	}
	var list admin.DenialsOfAll
	if err := c.post(ctx, c.Addr, c.Timeout, "/v1/denials?"+query.Encode(), nil, &list); err != nil {
		return err
	}
	warnOf(k.Stderr, list.Replicas, notAnswered)
	return c.Write(k.Stdout, &list, func(w io.Writer) error {
		var b strings.Builder
		now := time.Now()
		for i := range list.Denials {
			b.WriteString(denialLine(&list.Denials[i], now))
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// follow prints new denials until ctx ends.
func (c *denialsCmd) follow(ctx context.Context, w io.Writer, path string) error {
	api, err := c.client(c.Addr)
	if err != nil {
		return err
	}
	err = api.Stream(ctx, path, nil, func(data []byte) error {
		var d denials.Denial
		if err := json.Unmarshal(data, &d); err != nil {
			return err
		}
		return c.Write(w, &d, func(w io.Writer) error {
			_, err := io.WriteString(w, denialLine(&d, time.Now()))
			return err
		})
	})
	switch {
	case ctx.Err() != nil: // Ctrl-C
		return nil
	case err == nil:
		err = api.Failed(errors.New("the process ended the stream"))
	}
	return err
}

// denialLine is a denial for a person: 03:12:07 shop.user user=ann 10 per minute, wait 41s.
func denialLine(d *denials.Denial, now time.Time) string {
	at := time.TimeOnly
	if now.Sub(d.Time) > 24*time.Hour {
		at = time.DateTime
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %d per %s", d.Time.Local().Format(at), terminal.Visible(d.Rule), terminal.Visible(descriptors.Pairs(d.Entries)),
		d.Limit, descriptors.WindowPeriod(time.Duration(d.Window)))
	if d.Name != "" {
		fmt.Fprintf(&b, " (%s)", terminal.Visible(d.Name))
	}
	unit := time.Second // a shorter wait is in milliseconds
	if time.Duration(d.RetryAfter) < unit {
		unit = time.Millisecond
	}
	fmt.Fprintf(&b, ", wait %v", (time.Duration(d.RetryAfter) + unit - 1).Truncate(unit))
	if d.Cost > 1 {
		fmt.Fprintf(&b, ", cost %d", d.Cost)
	}
	if d.Policy != "counted" {
		fmt.Fprintf(&b, ", by policy %s", terminal.Visible(d.Policy))
	}
	if d.Shadow {
		b.WriteString(", shadow")
	}
	if d.Sampled > 1 {
		fmt.Fprintf(&b, ", 1 of about %d denials", d.Sampled)
	}
	b.WriteString(onReplica(d.Replica) + "\n")
	return b.String()
}
