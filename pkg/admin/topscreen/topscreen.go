// Package topscreen shows the keys that are denied, asked for or charged most, as text and on
// a terminal.
package topscreen

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

// keyOf is the descriptor of a row, as --descriptor takes it.
func keyOf(r *top.Row) string {
	return terminal.Visible(descriptors.Argument(r.Entries))
}

// share is the part of a row's requests that were denied, 0 to 1.
func share(r *top.Row) float64 { return float64(r.Denied) / float64(max(r.Hits, r.Denied, 1)) }

// Text writes a table for a person.
func Text(w io.Writer, t *top.Table, colors terminal.Colors) error {
	head := fmt.Sprintf("last %s: %d requests, %d denied, %d hits\n", t.Window, t.Total.Hits, t.Total.Denied, t.Total.Cost)
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintf(w, "%sno key to show by %s\n", head, t.By)
		return err
	}
	lines := table(t)
	_, err := fmt.Fprintf(w, "%s%s\n%s\n", head, colors.Bold(lines[0]), strings.Join(lines[1:], "\n"))
	return err
}

// table is the line with the names of the columns, and a line for each row.
func table(t *top.Table) []string {
	var b strings.Builder
	columns := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	quotas := slices.ContainsFunc(t.Rows, func(r top.Row) bool { return r.Buckets > 0 })
	envoys := "BUCKETS\tASSIGNED/s\t"
	if !quotas {
		envoys = ""
	}
	_, _ = fmt.Fprintf(columns, "DENIED\tSHARE\tHITS\tCOST\tRATE (%s/s)\tERROR\tREMAINING\t%s  LIMIT  RULE  KEY\n", t.By, envoys)
	for i := range t.Rows {
		r := &t.Rows[i]
		remaining := "-"
		if r.Remaining != nil {
			remaining = strconv.FormatInt(*r.Remaining, 10)
		}
		if quotas {
			envoys = fmt.Sprintf("%d\t%.1f\t", r.Buckets, r.Assigned)
		}
		_, _ = fmt.Fprintf(columns, "%d\t%.0f %%\t%d\t%d\t%.1f\t%d\t%s\t%s  %s  %s  %s\n", r.Denied, 100*share(r), r.Hits, r.Cost, r.Rate, r.Error,
			remaining, envoys, cmp.Or(terminal.Visible(r.Limit), "-"), cmp.Or(terminal.Visible(r.Rule), "(no rule)"), keyOf(r))
	}
	_ = columns.Flush()
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
