package commands

import (
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service/operate"
)

const usageHelp = `It reads the counters of all values of a rule from the store, page by page: in Redis with SCAN
on every master, in memory those of each replica (--fleet). SHARE is the used part of a limit.
A key that the store has shortened does not tell its values; stderr has the number of those.
memcached, CACHE_KEY_HASH and CACHE_KEY_FORMAT=ratelimit hide all of them. In CSV, which
spreadsheets read, a ' stands before a field that begins with =, +, - or @.

Exit codes:
  0  the counters are printed, or the rule has none` + exitRefused + `
  rls usage --rule shop.plan_free.user --above 80% --token-file ops.token
  rls usage --rule shop.user --format csv --addr unix:/run/rls/admin.sock > usage.csv`

type usageCmd struct {
	Rule   string `required:"" help:"Path of the rule, such as shop.plan_free.user."`
	Above  string `default:"0%" placeholder:"SHARE" help:"Least part of its limit that a counter has used: 80%, or 0.8."`
	N      int    `name:"n" placeholder:"N" min:"1" help:"Most rows; without it all."`
	Format string `default:"text" enum:"text,csv,json" help:"How to print the rows: text, csv or json."`

	addrFlag
	Access
	fleetFlag
}

func (c *usageCmd) Run(ctx context.Context, k *kong.Kong) error {
	share, err := shareOf(c.Above)
	if err != nil {
		return err
	}
	const most = 1000 // rows of a page
	query := admin.Query{Rule: c.Rule, Above: strconv.FormatFloat(share, 'g', -1, 64), Fleet: c.Fleet}
	all := admin.Usage{UsagePage: operate.UsagePage{Rows: []operate.Used{}}}
	for {
		if query.N = most; c.N > 0 {
			query.N = min(most, c.N-len(all.Rows))
		}
		var page admin.Usage
		if err := c.post(ctx, c.Addr, query.To("/v1/usage"), nil, &page); err != nil {
			return err
		}
		all.Rows, all.Hidden, all.Cursor = append(all.Rows, page.Rows...), all.Hidden+page.Hidden, page.Cursor
		for _, r := range page.Replicas {
			if !slices.Contains(all.Replicas, r) {
				all.Replicas = append(all.Replicas, r)
			}
		}
		if query.Cursor = page.Cursor; page.Cursor == "" || c.N > 0 && len(all.Rows) >= c.N {
			break
		}
	}
	warnOf(k.Stderr, all.Replicas, notAnswered)
	if all.Hidden > 0 {
		_, _ = fmt.Fprintf(k.Stderr,
			"rls: %d keys of the domain do not tell their values, because the store has shortened them\n", all.Hidden)
	}
	rows, more := all.Rows, all.Cursor != ""
	if c.N > 0 && len(rows) > c.N { // Redis may list a few keys more than it is asked for
		rows, more = rows[:c.N], true
	}
	if c.Format == "csv" {
		return writeUsage(csv.NewWriter(k.Stdout), rows)
	}
	ask := adminAsk{Output: cli.Output{Format: c.Format}}
	return ask.print(k, &all, func(s *sheet) { s.addUsage(rows, more) })
}

// shareOf reads 80% or 0.8.
func shareOf(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share >= 0) {
		return 0, cli.UsageError("--above is %q: want a part of the limit, such as 80%% or 0.8", text)
	}
	return share, nil
}

func (s *sheet) addUsage(rows []operate.Used, more bool) {
	if len(rows) == 0 {
		s.addf("no counter of the rule has used so much\n")
		return
	}
	s.addf("SHARE\tUSED\tLIMIT\tRESET\tDESCRIPTOR\tNAME\n")
	for _, r := range rows {
		name := r.Name
		if r.Plan != "" {
			name = strings.TrimSpace(name + " plan " + r.Plan)
		}
		s.addf("%.1f %%\t%d\t%d\t%v\t%s\t%s%s\n", 100*r.Share, r.Used, r.Limit, time.Duration(r.Reset).Round(time.Second),
			descriptors.Argument(r.Entries), name, onReplica(r.Replica))
	}
	s.addIf(more, "there are more: --n is the most that are shown\n")
}

// writeUsage writes rows as CSV.
func writeUsage(w *csv.Writer, rows []operate.Used) error {
	_ = w.Write([]string{"domain", "descriptor", "rule", "name", "plan", "used", "limit", "share", "reset", "replica"})
	for _, r := range rows {
		reset, _ := r.Reset.MarshalText()
		record := []string{
			r.Domain, descriptors.Argument(r.Entries), r.Rule, r.Name, r.Plan, strconv.FormatInt(r.Used, 10),
			strconv.FormatUint(uint64(r.Limit), 10), strconv.FormatFloat(r.Share, 'g', -1, 64), string(reset), r.Replica,
		}
		for i, field := range record {
			if field != "" && strings.ContainsRune("=+-@", rune(field[0])) {
				record[i] = "'" + field // a spreadsheet would take it as a formula
			}
		}
		_ = w.Write(record)
	}
	w.Flush()
	return w.Error()
}
