package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/topscreen"
)

const topHelp = `It shows the counters whose descriptors were denied, asked for or charged most in the last
minute. Values that share a counter (share_threshold) are one row, with the pattern.
On a terminal the table is drawn anew each second: d, h and c choose the order, / filters,
q quits. The column RATE is of the order: denied requests, requests or hits a second. ERROR is the most by which a row may be too high: above
2,500 requests a second, for 999 of 1,000 rows.

Exit codes:
  0  the table is printed; with --fleet also if some replicas do not answer
  1  an admin API refused, or could not be reached
  2  a flag is wrong, or a file cannot be read

Examples:
  rls top --token-file ops.token
  rls top --fleet --addr rls.example:6071
  rls top --by hits --once --format json --addr rls-headless:6071`

type topCmd struct {
	By   string `default:"denied" enum:"denied,hits,cost" help:"Order of the rows, and what RATE is of: denied (requests that were denied), hits (requests) or cost (hits that they asked to charge)."`
	N    int    `name:"n" default:"20" help:"Most rows, 1 to 1000."`
	Rule string `help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	Once bool   `help:"Print the table once, also on a terminal."`

	Addr []string `default:"localhost:6071" sep:"none" help:"Where an admin API listens: HOST:PORT or unix:PATH. Repeat the flag for several processes. A name with several addresses stands for all of them, such as that of a headless Service. The rows are the sums."`

	fleetFlag
	adminAccess
	adminAnswer
}

// Run prints the table, or shows it until the person quits.
func (c *topCmd) Run(ctx context.Context, k *kong.Kong) error {
	if c.N < 1 || c.N > client.MaxRows {
		return cli.UsageError("--n is %d: want 1 to %d", c.N, client.MaxRows)
	}
	fetch, err := c.fetch()
	if err != nil {
		return err
	}
	view := topscreen.View{By: c.By, Rule: c.Rule, N: c.N, Fetch: func(ctx context.Context, by string) topscreen.Answer {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return fetch(ctx, by)
	}}
	if !c.JSON() && !c.Once && terminal.Is(k.Stdout) && terminal.Is(os.Stdin) {
		display, restore, err := terminal.OpenDisplay(os.Stdin, k.Stdout.(*os.File))
		if err != nil {
			return err
		}
		defer restore()
		view.Show(ctx, display)
		return nil
	}
	view.Answer = view.Fetch(ctx, c.By)
	if view.Table.Rows == nil {
		return view.Err
	}
	shown := view.Shown()
	if c.Fleet {
		warnOf(k.Stderr, view.Replicas, notAnswered)
		view.Err = nil
	}
	return errors.Join(c.Write(k.Stdout, &admin.TopOfAll{Table: shown, Replicas: view.Replicas}, func(w io.Writer) error {
		return topscreen.Text(w, &shown, terminal.ColorsFor(w))
	}), view.Err)
}

// fetch returns the function that asks for the table of all processes. Its errors are usage
// errors.
func (c *topCmd) fetch() (func(ctx context.Context, by string) topscreen.Answer, error) {
	if !c.Fleet {
		fleet, err := client.NewFleet(c.Addr, c.open)
		return func(ctx context.Context, by string) topscreen.Answer {
			table, from, err := fleet.Top(ctx, by, c.Rule)
			return topscreen.Answer{Table: table, From: from, Err: err}
		}, err
	}
	if len(c.Addr) > 1 {
		return nil, cli.UsageError("--fleet has one process ask the others: want one --addr beside it")
	}
	api, err := c.client(c.Addr[0])
	return func(ctx context.Context, by string) topscreen.Answer {
		var all admin.TopOfAll
		err := api.Ask(ctx, client.TopPath(by, c.Rule)+"&fleet=true", nil, &all)
		if err == nil {
			err = client.Failed(all.Replicas)
		}
		from := client.Answered{All: len(all.Replicas)}
		for _, r := range all.Replicas {
			if r.OK {
				from.OK++
			}
		}
		return topscreen.Answer{Table: all.Table, Replicas: all.Replicas, From: from, Err: err}
	}, err
}

// open returns a client for an address of name. With TLS the certificate must be for the
// host of name, unless --server-name is given.
func (c *topCmd) open(addr, name string) (*client.Client, error) {
	access := c.adminAccess
	if host, _, err := net.SplitHostPort(name); access.TLS && err == nil {
		access.ServerName = cmp.Or(access.ServerName, host)
	}
	return access.client(addr)
}
