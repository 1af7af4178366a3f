package replay

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
)

// Text writes the result for a person.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines, %d requests, %d malformed, %d denied (%s)", r.Lines, r.Requests, r.Malformed, r.Denied, percent(r.Denied, r.Requests))
	if r.From != nil {
		fmt.Fprintf(&b, ", %s to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	}
	b.WriteByte('\n')
	r.Back.write(&b, "went back in time")
	r.Ahead.write(&b, "are ahead of the lines behind them")
	b.WriteByte('\n')
	writeRules(&b, r.Rules)
	if a := r.Against; a != nil {
		fmt.Fprintf(&b, "against the other rules: %d denied (%s), %d newly denied, %d newly allowed\n\n",
			a.Denied, percent(a.Denied, r.Requests), a.NewlyDenied, a.NewlyAllowed)
		writeRules(&b, a.Rules)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *Strayed) write(b *strings.Builder, what string) {
	if s.Lines > 0 {
		fmt.Fprintf(b, "%d lines %s, by up to %v: each counts at the time of the line before it\n", s.Lines, what, time.Duration(s.By))
	}
}

func writeRules(b *strings.Builder, rules []*Rule) {
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "REQUESTS\tDENIED\tSHARE\tFIRST DENIAL\t  RULE")
	for _, r := range rules {
		first := "-"
		if r.FirstDenial != nil {
			first = r.FirstDenial.Format(time.RFC3339)
		}
		shadow := ""
		if r.ShadowDenied > 0 {
			shadow = fmt.Sprintf(", %d denied in shadow mode", r.ShadowDenied)
		}
		_, _ = fmt.Fprintf(table, "%d\t%d\t%s\t%s\t  %s (%s:%d)%s\n", r.Requests, r.Denied, percent(r.Denied, r.Requests), first,
			terminal.Visible(r.Rule), terminal.Visible(r.File), r.Line, shadow)
	}
	_ = table.Flush()
	b.WriteByte('\n')
	for _, r := range rules {
		if len(r.Top) == 0 {
			continue
		}
		fmt.Fprintf(b, "%s: denied most\n", terminal.Visible(r.Rule))
		for _, k := range r.Top {
			fmt.Fprintf(b, "%10d  %s\n", k.Denied, terminal.Visible(descriptors.Pairs(k.Entries)))
		}
		if r.Denied > 0 {
			line, each := sparkline(r.Hourly)
			fmt.Fprintf(b, "  denials from %s, %s each: %s\n", r.Hourly[0].Hour.Format(time.RFC3339), each, line)
		}
		b.WriteByte('\n')
	}
}

func percent(part, all int64) string {
	if all == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(all))
}

// sparkline draws the denials of the hours, also of hours without requests, in at most 60
// columns of so many hours each.
func sparkline(hours []Hour) (line, each string) {
	const columns = 60
	first, last := hours[0].Hour, hours[len(hours)-1].Hour
	count := int(last.Sub(first)/time.Hour) + 1
	step := (count + columns - 1) / columns
	sums := make([]int64, (count+step-1)/step)
	for _, h := range hours {
		sums[int(h.Hour.Sub(first)/time.Hour)/step] += h.Denied
	}
	highest := slices.Max(sums)
	bars := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range sums {
		level := 0
		if n > 0 {
			level = 1 + int(n*int64(len(bars)-2)/highest)
		}
		b.WriteRune(bars[level])
	}
	if step == 1 {
		return b.String(), "an hour"
	}
	return b.String(), fmt.Sprintf("%d hours", step)
}
