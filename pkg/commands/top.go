package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
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
	warnOfAnswer(k.Stderr, api, answer.Replicas)
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
	warnOfAnswer(&text, api, answer.Replicas)
	_ = writeTop(&text, &answer, terminal.Colors{}, width) // to memory
	return text.String()
}

// writeTop writes a table for a person, whose lines end after width characters. A line whose key is
// longer than the column of keys does not.
func writeTop(w io.Writer, t *admin.TopOfAll, colors terminal.Colors, width int) error {
	head := fmt.Sprintf("last %s: %d requests, %d denied, %d hits\n", t.Window, t.Total.Hits, t.Total.Denied, t.Total.Cost)
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintf(w, "%sno key to show by %s%s\n", head, t.By, answeredOf(", ", t.Replicas, ""))
		return err
	}
	keys, column := keysOf(t.Rows, width)
	lines := numbers(&t.Table)
	for i, key := range keys {
		line := fmt.Sprintf("%-*s%s", column, key, lines[i])
		if utf8.RuneCountInString(key) <= column {
			line = terminal.Cut(line, width)
		}
		lines[i] = line
	}
	_, err := fmt.Fprintf(w, "%s%s\n%s\n", head, colors.Bold(lines[0]), strings.Join(lines[1:], "\n"))
	return err
}

// keysOf is the column of keys below its name, each as --descriptor takes it, and the width of the
// column: that of the longest key which takes at most half of a line and 40 characters.
func keysOf(rows []top.Row, width int) (keys []string, column int) {
	keys = []string{"KEY"}
	for i := range rows {
		keys = append(keys, terminal.Visible(descriptors.Argument(rows[i].Entries)))
	}
	for _, key := range keys {
		if n := utf8.RuneCountInString(key); n <= min(40, width/2) {
			column = max(column, n)
		}
	}
	return keys, column
}

// numbers is the line with the names of the columns behind the key, and a line for each row.
func numbers(t *top.Table) []string {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	quotas := slices.ContainsFunc(t.Rows, func(r top.Row) bool { return r.Buckets > 0 })
	envoys := "BUCKETS\tASSIGNED/s\t"
	if !quotas {
		envoys = ""
	}
	_, _ = fmt.Fprintf(columns, "DENIED\tSHARE\tHITS\tCOST\tRATE (%s/s)\tERROR\tREMAINING\t%s  LIMIT  RULE\n", t.By, envoys)
	for i := range t.Rows {
		r := &t.Rows[i]
		remaining := "-"
		if r.Remaining != nil {
			remaining = strconv.FormatInt(*r.Remaining, 10)
		}
		if quotas {
			envoys = fmt.Sprintf("%d\t%.1f\t", r.Buckets, r.Assigned)
		}
		limit := cmp.Or(r.Limit, "-")
		if r.Plan != "" {
			limit += ", plan " + r.Plan
		}
		denied := 100 * float64(r.Denied) / float64(max(r.Hits, r.Denied, 1))
		_, _ = fmt.Fprintf(columns, "%d\t%.0f %%\t%d\t%d\t%.1f\t%d\t%s\t%s  %s  %s\n", r.Denied, denied, r.Hits, r.Cost, r.Rate, r.Error,
			remaining, envoys, terminal.Visible(limit), cmp.Or(terminal.Visible(r.Rule), "(no rule)"))
	}
	_ = columns.Flush()
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
