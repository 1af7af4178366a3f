package commands

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
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
  rls top --by hits --once --format json --addr rls-headless:6071`

type topCmd struct {
	By   string `default:"denied" enum:"denied,hits,cost" help:"Order of the rows, and what RATE is of: denied (requests that were denied), hits (requests) or cost (hits that they asked to charge)."`
	N    int    `name:"n" default:"0" min:"0" max:"1000" help:"Most rows, up to 1000; 0 is as many as the screen has, and 20 without a screen."`
	Rule string `help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	Once bool   `help:"Print the table once, also on a terminal."`

	Addr []string `default:"localhost:6071" sep:"none" help:"Where an admin API listens: HOST:PORT or unix:PATH. Repeat the flag for several processes. A name with several addresses stands for all of them, such as that of a headless Service. The rows are the sums."`

	fleetFlag
	Access
	cli.Output `set:"output=answer"`
}

// Run prints the table, or shows it until the person quits.
func (c *topCmd) Run(ctx context.Context, k *kong.Kong) error {
	if c.Fleet && len(c.Addr) > 1 {
		return cli.UsageError("--fleet has one process ask the others: want one --addr beside it")
	}
	api, err := c.client(c.Addr[0])
	if err != nil {
		return err
	}
	processes, err := client.NewFleet(c.Addr, c.open)
	if err != nil {
		return err
	}
	source := &topSource{c, api, processes}
	if !c.JSON() && !c.Once && terminal.Is(k.Stdout) && terminal.Is(os.Stdin) {
		return terminal.Redraw(ctx, os.Stdin, k.Stdout.(*os.File), source.screen)
	}
	const rows = 20
	answer, err := source.top(ctx, rows)
	if answer.Rows == nil {
		return err
	}
	warnOf(k.Stderr, answer.Replicas, notAnswered)
	return errors.Join(c.Write(k.Stdout, &answer, func(w io.Writer) error {
		return writeTop(w, &answer.Table, terminal.ColorsFor(w), math.MaxInt)
	}), err)
}

// topSource asks the processes at the addresses of the flags.
type topSource struct {
	*topCmd
	api *client.Client // at the first address, for --fleet
	all *client.Fleet  // without --fleet
}

// top asks for the table, with at most --n rows, or without the flag the given number. Its Rows are
// nil if no process answered. The error joins those of the processes that did not answer.
func (s *topSource) top(ctx context.Context, rows int) (answer admin.TopOfAll, err error) {
	if s.Fleet {
		err = s.ask(ctx, s.api, client.TopPath(s.By, s.Rule)+"&fleet=true", nil, &answer)
	} else {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		answer.Table, err = s.all.Top(ctx, s.By, s.Rule)
	}
	answer.Rows = answer.Rows[:min(cmp.Or(s.N, rows), len(answer.Rows))]
	return answer, err
}

// screen is the table for a terminal of that size, below the errors of processes.
func (s *topSource) screen(ctx context.Context, width, height int) string {
	answer, err := s.top(ctx, height)
	var text strings.Builder
	if err != nil {
		cli.WriteError(&text, err)
	}
	warnOf(&text, answer.Replicas, notAnswered)
	if answer.Rows != nil {
		_ = writeTop(&text, &answer.Table, terminal.Colors{}, width) // to memory
	}
	return text.String()
}

// open returns a client for an address of name. With TLS the certificate must be for the
// host of name, unless --server-name is given.
func (c *topCmd) open(addr, name string) (*client.Client, error) {
	access := c.Access
	if host, _, err := net.SplitHostPort(name); access.TLS && err == nil {
		access.ServerName = cmp.Or(access.ServerName, host)
	}
	return access.client(addr)
}
