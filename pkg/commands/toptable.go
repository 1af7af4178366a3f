package commands

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

// writeTop writes a table for a person, whose lines end after width characters. A line whose key is
// longer than the column of keys does not.
func writeTop(w io.Writer, t *admin.TopOfAll, colors terminal.Colors, width int) error {
	head := fmt.Sprintf("last %s: %d requests, %d denied, %d hits\n", t.Window, t.Total.Hits, t.Total.Denied, t.Total.Cost)
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintf(w, "%sno key to show by %s%s\n", head, t.By, ofReplicas(t.Replicas))
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
