package commands

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/protobuf/proto"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/pace"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/admin/topscreen"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/top"
)

const topHelp = `It shows the counters whose descriptors were denied, asked for or charged most in the last
minute. Values that share a counter (share_threshold) are one row, with the pattern.
On a terminal the table is drawn anew each second, with a cursor: Enter explains its row, g
grants hits, r resets, d, h, c and s choose the order, f filters, p pauses, ? tells all keys,
q quits. The column RATE is of the order: denied requests, requests or hits a second. SHARE
is the part of the requests that was denied. ERROR is the largest possible overcount of the
order's column: above 2,500 requests a second, for 999 of 1,000 rows.

Exit codes:
  0  the table is printed; with --fleet also if some replicas do not answer` + exitRefused + `
  rls top --token-file ops.token
  rls top --fleet --addr rls.example:6071
  rls top --stat
  rls top --by hits --once --format json --addr rls-headless:6071`

type topCmd struct {
	By   string `default:"denied" enum:"denied,hits,cost" help:"Order of the rows, and what RATE is of: denied (requests that were denied), hits (requests) or cost (hits that they asked to charge)."`
	N    int    `name:"n" default:"0" min:"0" max:"1000" help:"Most rows, up to 1000; 0 is as many as the screen has, and 20 without a screen."`
	Rule string `help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	Once bool   `help:"Print the table once, also on a terminal."`
	Stat bool   `help:"Print the requests, denials and errors a second, the latency and the state of the store as a line each second."`

	Addr []string `default:"localhost:6071" sep:"none" help:"Where an admin API listens: HOST:PORT or unix:PATH. Repeat the flag for several processes. A name with several addresses stands for all of them, such as that of a headless Service. The rows are the sums."`

	fleetFlag
	Access
	cli.Output `set:"output=answer"`
}

// Run prints the table, or shows it until the person quits.
func (c *topCmd) Run(ctx context.Context, k *kong.Kong) error {
	switch {
	case c.Fleet && len(c.Addr) > 1:
		return cli.UsageError("--fleet has one process ask the others: want one --addr beside it")
	case c.Stat && (c.JSON() || len(c.Addr) > 1):
		return cli.UsageError("--stat prints lines about one process, or with --fleet about all: want one --addr and no --format json")
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
	view := topscreen.View{By: c.By, Rule: c.Rule, N: c.N, Source: source}
	if c.Stat {
		return c.stat(ctx, k.Stdout, source)
	}
	if !c.JSON() && !c.Once && terminal.Is(k.Stdout) && terminal.Is(os.Stdin) {
		display, restore, err := terminal.OpenDisplay(os.Stdin, k.Stdout.(*os.File))
		if err != nil {
			return err
		}
		defer restore()
		view.Show(ctx, display)
		return nil
	}
	answer := source.Top(ctx, c.By)
	if answer.Table.Rows == nil {
		return answer.Err
	}
	shown := answer.Table
	shown.Rows = shown.Rows[:min(cmp.Or(c.N, defaultRows), len(shown.Rows))]
	if c.Fleet {
		warnOf(k.Stderr, answer.Replicas, notAnswered)
		answer.Err = nil
	}
	return errors.Join(c.Write(k.Stdout, &admin.TopOfAll{Table: shown, Replicas: answer.Replicas}, func(w io.Writer) error {
		return topscreen.Text(w, &shown, terminal.ColorsFor(w))
	}), answer.Err)
}

// defaultRows is the number of rows where there is no screen.
const defaultRows = 20

// stat prints a line a second until ctx ends, or one with --once.
func (c *topCmd) stat(ctx context.Context, w io.Writer, source *topSource) error {
	const page = 20 // lines below the names of the columns
	for line := range pace.Every(ctx, time.Second) {
		now, err := source.status(ctx)
		if ctx.Err() != nil && line > 0 {
			return nil
		}
		if err == nil && line%page == 0 {
			_, err = io.WriteString(w, topscreen.StatHead)
		}
		if err == nil {
			err = topscreen.Stat(w, now)
		}
		if err != nil || c.Once {
			return err
		}
	}
	return nil
}

// topSource asks the processes at the addresses of the flags. It is a [topscreen.Source].
type topSource struct {
	*topCmd
	api *client.Client // at the first address
	all *client.Fleet  // without --fleet
}

func (s *topSource) Top(ctx context.Context, by string) (answer topscreen.Answer) {
	if s.Fleet {
		var all admin.TopOfAll
		answer.Err = s.ask(ctx, s.api, client.TopPath(by, s.Rule)+"&fleet=true", nil, &all)
		if answer.Table, answer.Replicas = all.Table, all.Replicas; answer.Err == nil {
			answer.From, answer.Err = client.Count(all.Replicas)
		}
	} else {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		answer.Table, answer.From, answer.Err = s.all.Top(ctx, by, s.Rule)
	}
	if s.Fleet || answer.From.All == 1 {
		if now, err := s.status(ctx); err == nil { // an error is that of the table, too
			answer.Status = now
		}
	}
	return answer
}

// status asks for the state of the process at the first address, or of all with --fleet.
func (s *topSource) status(ctx context.Context) (*status.Document, error) {
	path, now := "/v1/status", new(status.Document)
	if s.Fleet {
		path += "?fleet=true"
	}
	return now, s.ask(ctx, s.api, path, nil, now)
}

func (s *topSource) Explain(ctx context.Context, row *top.Row) (string, error) {
	var document explain.Document
	if err := s.ask(ctx, s.api, "/v1/explain", &pb.LookRequest{Domain: row.Domain, Descriptors: descriptorOf(row)}, &document); err != nil {
		return "", err
	}
	var text strings.Builder
	err := document.Text(&text)
	return text.String(), err
}

func (s *topSource) Grant(ctx context.Context, row *top.Row, hits int64) (string, error) {
	return s.change(ctx, "granted", "/v1/grant", &pb.GrantRequest{Domain: row.Domain, Descriptors: descriptorOf(row), Hits: hits})
}

func (s *topSource) Reset(ctx context.Context, row *top.Row) (string, error) {
	return s.change(ctx, "reset", "/v1/reset", &pb.ResetRequest{Domain: row.Domain, Descriptors: descriptorOf(row)})
}

func (s *topSource) change(ctx context.Context, done, path string, message proto.Message) (string, error) {
	var changes admin.Changes
	if err := s.ask(ctx, s.api, path, message, &changes); err != nil {
		return "", err
	}
	return changesText(&changes, done)
}

// descriptorOf is the descriptor of a row as the admin API takes it.
func descriptorOf(row *top.Row) []*pb.Descriptor {
	return messages([]service.Descriptor{{Entries: row.Entries}})
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
