package commands

import (
	"cmp"
	"context"
	"io"
	"math"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/top"
)

const topHelp = `It shows the counters whose descriptors were denied, asked for or charged most in the last
minute. Values that share a counter (share_threshold) are one row, with the pattern.
On a terminal the table is drawn anew each second until you type q or Ctrl-C; lines end at the
edge of the screen, except lines of long keys. rls explain, get, grant, reset and the page do
the rest. The column RATE is of the order: denied requests, requests or hits a second. SHARE
is the part of the requests that was denied. ERROR is the largest possible overcount of the
order's column: above 2,500 requests a second, for 999 of 1,000 rows.

Exit codes:
  0  the table is printed; with --fleet also if some replicas do not answer` + exitRefused + `
  rls top --token-file ops.token
  rls top --fleet --addr rls.example:6071
  rls top --by hits --once --format json --addr unix:/run/rls/admin.sock`

type topCmd struct {
	By   string `default:"denied" enum:"denied,hits,cost" help:"Order of the rows, and of what RATE is: denied requests, hits (requests) or cost (hits to charge)."`
	N    int    `name:"n" default:"0" min:"0" max:"1000" help:"Most rows, up to 1000; 0 is as many as the screen has, and 20 without a screen."`
	Rule string `help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	Once bool   `help:"Print the table once, also on a terminal."`

	Addr []string `default:"${addr}" sep:"none" help:"Where the admin API listens: HOST:PORT, or unix:PATH. $RLS_ADDR is the default, or localhost:6071."`

	fleetFlag
	Access
	cli.Output `set:"output=answer"`
}

// Run prints the table, or shows it until the person quits.
func (c *topCmd) Run(ctx context.Context, k *kong.Kong) error {
	if len(c.Addr) > 1 {
		return cli.UsageError("--addr names %d processes: want one, which --fleet has ask for all replicas", len(c.Addr))
	}
	api, err := c.client(c.Addr[0])
	if err != nil {
		return err
	}
	if !c.JSON() && !c.Once && terminal.Is(k.Stdout) && terminal.Is(os.Stdin) {
		return terminal.Redraw(ctx, os.Stdin, k.Stdout.(*os.File), func(ctx context.Context, width, height int) string {
			return c.screen(ctx, api, width, height)
		})
	}
	const rows = 20
	answer, err := c.top(ctx, api, rows)
	if err != nil {
		return err
	}
	warnOf(k.Stderr, answer.Replicas, notAnswered)
	return c.Write(k.Stdout, &answer, func(w io.Writer) error {
		return writeTop(w, &answer, terminal.ColorsFor(w), math.MaxInt)
	})
}

// top asks for the table, with at most --n rows, or without the flag the given number.
func (c *topCmd) top(ctx context.Context, api *client.Client, rows int) (answer admin.TopOfAll, err error) {
	query := admin.Query{By: c.By, Rule: c.Rule, N: min(cmp.Or(c.N, rows), top.MaxRows), Fleet: c.Fleet}
	if err = c.ask(ctx, api, query.To("/v1/top"), nil, &answer); err == nil {
		answer.Table = top.Sum([]top.Table{answer.Table}) // without keys whose count is 0
	}
	return answer, err
}

// screen is the table for a terminal of that size, or why there is none.
func (c *topCmd) screen(ctx context.Context, api *client.Client, width, height int) string {
	answer, err := c.top(ctx, api, height)
	var text strings.Builder
	if err != nil {
		cli.WriteError(&text, err)
		return text.String()
	}
	warnOf(&text, answer.Replicas, notAnswered)
	_ = writeTop(&text, &answer, terminal.Colors{}, width) // to memory
	return text.String()
}
