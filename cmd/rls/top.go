package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

const topHelp = `It shows the descriptors of the last minute that are denied, asked for or charged most.
On a terminal the table is drawn anew each second: d, h and c choose the order, / filters,
q quits. The column ERROR is the most by which a row may be too high: above
2,500 requests a second, for 999 of 1,000 rows.

Exit codes:
  0  the table is printed
  1  an admin API refused, or could not be reached
  2  a flag is wrong, or a file cannot be read

Examples:
  rls top --token-file ops.token
  rls top --by hits --once --format json --addr rls-headless:6071`

type topCmd struct {
	By   string `default:"denied" enum:"denied,hits,cost" help:"Order of the rows: denied (requests that were denied), hits (requests) or cost (hits that they asked to charge)."`
	N    int    `name:"n" default:"20" help:"Most rows, 1 to 1000."`
	Rule string `help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	Once bool   `help:"Print the table once, also on a terminal."`

	Addr []string `default:"localhost:6071" sep:"none" help:"Where an admin API listens: HOST:PORT or unix:PATH. Repeat the flag for several processes. A name with several addresses stands for all of them, such as that of a headless Service. The rows are the sums."`

	adminAccess
	adminAnswer
}

// Run prints the table, or shows it until the person quits.
func (c *topCmd) Run(ctx context.Context, k *kong.Kong) error {
	if c.N < 1 || c.N > client.MaxRows {
		return cli.UsageError("--n is %d: want 1 to %d", c.N, client.MaxRows)
	}
	fleet := client.Fleet{Addrs: c.Addr, Open: c.open}
	if err := fleet.Check(); err != nil {
		return err
	}
	view := topView{by: c.By, rule: c.Rule, n: c.N, ask: func(ctx context.Context, by string) topAnswer {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		table, from, err := fleet.Top(ctx, by, c.Rule)
		return topAnswer{table, from, err}
	}}
	if !c.JSON() && !c.Once && terminal.Is(k.Stdout) && terminal.Is(os.Stdin) {
		display, restore, err := terminal.OpenDisplay(os.Stdin, k.Stdout.(*os.File))
		if err != nil {
			return err
		}
		defer restore()
		display.Show(ctx, &view)
		return nil
	}
	view.topAnswer = view.ask(ctx, c.By)
	if view.table.Rows == nil { // nobody answered
		return view.err
	}
	shown := view.shown()
	return errors.Join(c.Write(k.Stdout, &shown, func(w io.Writer) error {
		return writeTop(w, &shown, terminal.ColorsFor(w))
	}), view.err)
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

// topAnswer is the table of all processes, and the errors of some.
type topAnswer struct {
	table top.Table
	from  client.Answered
	err   error
}

// topView is the table on a terminal. It shows the rows that the person wants.
type topView struct {
	by, rule string
	filter   string // a part of the rule or of the key
	n        int
	ask      func(ctx context.Context, by string) topAnswer

	topAnswer
	typing bool // the person types a filter
}

// shown is the table with the rows of the view.
func (v *topView) shown() top.Table {
	t := v.table
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(r top.Row) bool {
		return v.filter != "" && !strings.Contains(r.Rule+" "+topKey(&r), v.filter)
	})
	t.Rows = rows[:min(v.n, len(rows))]
	return t
}

// topKey is the descriptor of a row, as --descriptor takes it unless a value has a
// comma.
func topKey(r *top.Row) string {
	return terminal.Visible(descriptors.Pairs(r.Entries))
}

// writeTop writes a table for a person.
func writeTop(w io.Writer, t *top.Table, colors terminal.Colors) error {
	var b strings.Builder
	fmt.Fprintf(&b, "last %s: %d requests, %d denied, %d hits\n", t.Window, t.Total.Hits, t.Total.Denied, t.Total.Cost)
	if len(t.Rows) == 0 {
		fmt.Fprintf(&b, "no key to show by %s\n", t.By)
		_, err := io.WriteString(w, b.String())
		return err
	}
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(columns, "DENIED\tHITS\tCOST\tRATE/S\tERROR\t  RULE  KEY")
	for i := range t.Rows {
		r := &t.Rows[i]
		_, _ = fmt.Fprintf(columns, "%d\t%d\t%d\t%s\t%d\t  %s  %s\n", r.Denied, r.Hits, r.Cost,
			strconv.FormatFloat(r.Rate, 'f', 1, 64), r.Error, cmp.Or(terminal.Visible(r.Rule), "(limit of the request)"), topKey(r))
	}
	_ = columns.Flush()
	head, rest, _ := strings.Cut(b.String(), "\n")
	names, rest, _ := strings.Cut(rest, "\n")
	_, err := fmt.Fprintf(w, "%s\n%s\n%s", head, colors.Bold(names), rest)
	return err
}

// Ask implements [terminal.Screen]. An answer in another order than the person wants by
// now is not taken.
func (v *topView) Ask() func(context.Context) func() bool {
	by := v.by
	return func(ctx context.Context) func() bool {
		answer := v.ask(ctx, by)
		return func() bool {
			if by != v.by {
				return false
			}
			if answer.table.Rows == nil {
				answer.table = v.table
			}
			v.topAnswer = answer
			return true
		}
	}
}

const (
	ctrlC     = 3
	escape    = 27
	backspace = 127
	ctrlH     = 8
)

// Press implements [terminal.Screen].
func (v *topView) Press(key byte) (ask, quit bool) {
	switch {
	case key == ctrlC || !v.typing && (key == 'q' || key == 'Q'):
		return false, true
	case key == escape:
		v.typing, v.filter = false, ""
	case !v.typing:
		switch key {
		case 'd':
			v.by = "denied"
		case 'h':
			v.by = "hits"
		case 'c':
			v.by = "cost"
		case '/':
			v.typing, v.filter = true, ""
		}
	case key == '\r' || key == '\n':
		v.typing = false
	case key == backspace || key == ctrlH:
		_, last := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-last]
	case key >= ' ':
		v.filter += string([]byte{key}) // a byte of UTF-8
	}
	return v.table.By != v.by, false
}

// Draw implements [terminal.Screen].
func (v *topView) Draw() (text, foot string) {
	var b strings.Builder
	b.WriteString("rls top by " + v.by)
	if v.rule != "" {
		b.WriteString(", rule " + v.rule)
	}
	if v.from.All > 1 {
		fmt.Fprintf(&b, ", %d of %d processes", v.from.OK, v.from.All)
	}
	b.WriteString("\n")
	if v.err != nil {
		first, _, _ := strings.Cut(v.err.Error(), "\n")
		b.WriteString(first + "\n")
	}
	if v.table.Rows != nil {
		shown := v.shown()
		_ = writeTop(&b, &shown, terminal.Colors{})
	} else if v.err == nil {
		b.WriteString("asking…\n")
	}
	foot = "d denied  h hits  c cost  / filter  q quit"
	if v.typing || v.filter != "" {
		foot = "filter: " + terminal.Visible(v.filter)
	}
	return b.String(), foot
}
