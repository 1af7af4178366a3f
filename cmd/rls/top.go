package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/top"
)

type topCmd struct {
	By   string `default:"denied" enum:"denied,hits,cost" help:"Order of the rows: denied (requests that were denied), hits (requests) or cost (hits that they asked to charge)."`
	N    int    `name:"n" default:"20" help:"Most rows, 1 to 1000."`
	Rule string `help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	Once bool   `help:"Print the table once, also on a terminal."`

	Addr []string `default:"localhost:6071" sep:"none" help:"Where an admin API listens: HOST:PORT or unix:PATH. Repeat the flag for several processes. A name with several addresses stands for all of them, such as that of a headless Service. The rows are the sums."`

	adminAccess
	outputFlags
}

// Help implements [kong.HelpProvider].
func (*topCmd) Help() string {
	return `It shows the descriptors of the last minute that are denied, asked for or charged most.
On a terminal the table is drawn anew each second: d, h and c choose the order, / filters,
q quits. The column ERROR is the most by which a row may be too high.

Exit codes:
  0  the table is printed
  1  an admin API refused, or could not be reached
  2  a flag is wrong, or a file cannot be read

Examples:
  rls top --token-file ops.token
  rls top --by hits --once --format json --addr rls-headless:6071`
}

// mostRows is the number of rows that each process is asked for. It is more than --n,
// because a key can be low in each process and high in the sum.
const mostRows = 1000

func (c *topCmd) Run(k *kong.Kong) error {
	if c.N < 1 || c.N > mostRows {
		return usageError("--n is %d: want 1 to %d", c.N, mostRows)
	}
	replicas := replicas{addrs: c.Addr, access: &c.adminAccess}
	if err := replicas.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	view := topView{by: c.By, rule: c.Rule, n: c.N}
	ask := func(ctx context.Context, by string) (top.Table, asked, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return replicas.table(ctx, by, c.Rule)
	}
	if c.Format == "text" && !c.Once && terminal.Is(k.Stdout) && terminal.Is(os.Stdin) {
		return showTop(ctx, os.Stdin, k.Stdout.(*os.File), &view, ask)
	}
	table, _, err := ask(ctx, c.By)
	if table.Rows == nil { // nobody answered
		return err
	}
	table.Rows = view.rows(&table)
	if c.Format == "json" {
		return errors.Join(writeDocument(k.Stdout, table), err)
	}
	return errors.Join(writeTop(k.Stdout, &table, terminal.ColorsFor(k.Stdout)), err)
}

// topView selects the rows of a table that are shown.
type topView struct {
	by, rule string
	filter   string // a part of the rule or of the key
	n        int
}

// rows are the rows of the view.
func (v *topView) rows(t *top.Table) []top.Row {
	rows := slices.DeleteFunc(slices.Clone(t.Rows), func(r top.Row) bool {
		return v.filter != "" && !strings.Contains(r.Rule+" "+topKey(&r), v.filter)
	})
	return rows[:min(v.n, len(rows))]
}

// topKey is the descriptor of a row, as --descriptor takes it unless a value has a
// comma.
func topKey(r *top.Row) string {
	return explain.Visible(descriptors.Pairs(r.Entries))
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
			strconv.FormatFloat(r.Rate, 'f', 1, 64), r.Error, cmp.Or(explain.Visible(r.Rule), "(limit of the request)"), topKey(r))
	}
	_ = columns.Flush()
	head, rest, _ := strings.Cut(b.String(), "\n")
	names, rest, _ := strings.Cut(rest, "\n")
	_, err := fmt.Fprintf(w, "%s\n%s\n%s", head, colors.Bold(names), rest)
	return err
}

// replicas are the processes that are asked.
type replicas struct {
	addrs   []string
	access  *adminAccess
	clients map[string]*adminClient
}

// asked has the number of processes that were asked, and how many of them answered.
type asked struct{ all, answered int }

// check returns a usage error if an address or a flag of the access is wrong.
func (r *replicas) check() error {
	r.clients = map[string]*adminClient{}
	for _, addr := range r.addrs {
		if _, err := r.client(addr, addr); err != nil {
			return err
		}
	}
	return nil
}

// client returns the client for an address of name, and makes it at the first call. With
// TLS the certificate must be for the host of name, unless --server-name is given.
func (r *replicas) client(addr, name string) (*adminClient, error) {
	if c := r.clients[addr]; c != nil {
		return c, nil
	}
	access := *r.access
	if host, _, err := net.SplitHostPort(name); access.TLS && err == nil {
		access.ServerName = cmp.Or(access.ServerName, host)
	}
	c, err := access.open(addr)
	if err == nil {
		r.clients[addr] = c
	}
	return c, err
}

// expanded returns the addresses, with the port, of a HOST:PORT. It returns the name
// unchanged if the host is an address or localhost, if it cannot be resolved, and if the
// name is a Unix socket.
func expanded(ctx context.Context, name string) []string {
	host, port, err := net.SplitHostPort(name)
	if err != nil || strings.HasPrefix(name, "unix:") || host == "localhost" {
		return []string{name}
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{name}
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return []string{name} // the connection will say why
	}
	// A process with addresses of both kinds counts once.
	if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap().Is4() }) {
		addrs = slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.Unmap().Is4() })
	}
	var all []string
	for _, a := range addrs {
		all = append(all, net.JoinHostPort(a.Unmap().String(), port))
	}
	return all
}

// table asks all processes at once and returns the sums of their answers. The error joins
// the errors of the processes that did not answer; if none answered, Rows is nil.
func (r *replicas) table(ctx context.Context, by, rule string) (top.Table, asked, error) {
	clients := map[string]*adminClient{}
	for _, name := range r.addrs {
		for _, addr := range expanded(ctx, name) {
			c, err := r.client(addr, name)
			if err != nil {
				return top.Table{}, asked{}, err
			}
			clients[addr] = c
		}
	}
	path := "/v1/top?" + url.Values{"by": {by}, "rule": {rule}, "n": {strconv.Itoa(mostRows)}}.Encode()
	var mu sync.Mutex
	var tables []top.Table
	var errs []error
	var asking sync.WaitGroup
	for _, c := range clients {
		asking.Go(func() {
			var t top.Table
			err := c.get(ctx, path, &t)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			tables = append(tables, t)
		})
	}
	asking.Wait()
	n := asked{all: len(clients), answered: len(tables)}
	if len(tables) == 0 {
		return top.Table{}, n, errors.Join(errs...)
	}
	return summed(tables), n, errors.Join(errs...)
}

// summed is the sum of tables of several processes.
func summed(tables []top.Table) top.Table {
	sum := top.Table{By: tables[0].By, Window: tables[0].Window, Rows: []top.Row{}}
	type rowKey struct{ rule, caller string }
	place := map[rowKey]int{}
	for _, t := range tables {
		sum.Total.Hits += t.Total.Hits
		sum.Total.Denied += t.Total.Denied
		sum.Total.Cost += t.Total.Cost
		for _, r := range t.Rows {
			key := rowKey{r.Rule, string(descriptors.AppendID(nil, r.Domain, r.Entries, nil))}
			i, known := place[key]
			if !known {
				place[key] = len(sum.Rows)
				sum.Rows = append(sum.Rows, r)
				continue
			}
			at := &sum.Rows[i]
			at.Hits, at.Denied, at.Cost, at.Rate, at.Error = at.Hits+r.Hits, at.Denied+r.Denied, at.Cost+r.Cost, at.Rate+r.Rate, at.Error+r.Error
		}
	}
	measure := map[string]func(*top.Row) int64{
		"denied": func(r *top.Row) int64 { return r.Denied },
		"hits":   func(r *top.Row) int64 { return r.Hits },
		"cost":   func(r *top.Row) int64 { return r.Cost },
	}[sum.By]
	slices.SortStableFunc(sum.Rows, func(a, b top.Row) int { return cmp.Compare(measure(&b), measure(&a)) })
	for i := range sum.Rows {
		sum.Error = max(sum.Error, sum.Rows[i].Error)
	}
	return sum
}

// redraw is the time between two tables on a terminal.
const redraw = time.Second
