package explain

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"example.org/rls/internal/document"
	"example.org/rls/internal/spelling"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
)

// maxMismatches bounds the descriptors that do not match in the text of each depth; the
// rules may have one for each customer.
const maxMismatches = 5

// Text writes the document for a person, in colours if w is a terminal. Control
// characters are written as escape sequences of Go, such as \n and \x1b.
func (doc *Document) Text(w io.Writer) error {
	p := printer{colors: terminal.ColorsFor(w)}
	p.line(0, "domain %s", p.colors.Bold(terminal.Visible(doc.Domain)))
	if r := doc.Rules; r != nil {
		p.line(0, "rules from %s %s, loaded %s, hash %s", terminal.Visible(r.Source), terminal.Visible(r.Path), r.Loaded.Format(time.RFC3339), terminal.Visible(r.Hash))
	}
	for i := range doc.Descriptors {
		p.descriptor(&doc.Descriptors[i])
	}
	_, err := io.WriteString(w, p.text.String())
	return err
}

type printer struct {
	text   strings.Builder
	colors terminal.Colors
}

func (p *printer) line(indent int, format string, args ...any) {
	p.text.WriteString(strings.Repeat("  ", indent))
	fmt.Fprintf(&p.text, format, args...)
	p.text.WriteByte('\n')
}

func (p *printer) descriptor(d *Descriptor) {
	entries := make([]string, len(d.Entries))
	for i, e := range d.Entries {
		entries[i] = terminal.Visible(e.Pair())
	}
	p.line(0, "\ndescriptor %s", p.colors.Bold(strings.Join(entries, ", ")))
	p.path(d, entries)
	switch {
	case d.Override != nil:
		p.line(1, "%s", d.Override.words())
		if d.Row != "" {
			p.line(1, "the override wins over the table, whose row is %s", terminal.Visible(d.Row))
		}
	case d.Rule == "":
		p.line(1, "%s: %s", p.colors.Yellow("no limit"), terminal.Visible(d.Why))
		if len(d.Suggestions) > 0 {
			p.line(1, "%s", terminal.Visible(DidYouMean(d.Suggestions)))
		}
	default:
		p.line(1, "rule %s", p.colors.Bold(terminal.Visible(d.Rule)))
		if d.Row != "" {
			p.line(1, "row  %s", terminal.Visible(d.Row))
		}
	}
	if d.Shadow {
		p.line(1, "shadow mode: denials are counted and answered OK")
	}
	if d.Quota {
		p.line(1, "quota mode: the request is denied only if every descriptor in quota mode is")
	}
	for i := range d.Limits {
		p.limit(&d.Limits[i], d.Hits)
	}
}

// words says where the limit came from.
func (o *Override) words() string {
	if o.Seen.IsZero() {
		return "the limit came with the request"
	}
	return fmt.Sprintf("the last request (%s ago) brought %s in place of the rule's", age(time.Since(o.Seen)), &o.Rate)
}

// age is a duration in its largest unit up to an hour of which there are at least two.
func age(d time.Duration) string {
	switch d = max(0, d); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}

// path writes the descriptors of the rules that were looked at, a row for each.
func (p *printer) path(d *Descriptor, entries []string) {
	rows := make([][3]string, len(d.Path)) // place, descriptor, match
	var widths [3]int
	for i, s := range d.Path {
		place := document.Position{File: s.File, Line: s.Line}.Place()
		pair := descriptors.Entry{Key: s.Key, Value: s.Value}.Pair()
		rows[i] = [3]string{terminal.Visible(place), terminal.Visible(pair), string(s.Match)}
		for j, cell := range rows[i] {
			widths[j] = max(widths[j], utf8.RuneCountInString(cell))
		}
	}
	mismatches, omitted := 0, 0
	for i, s := range d.Path {
		if i == 0 || s.Depth != d.Path[i-1].Depth {
			p.line(1, "%d. %s", s.Depth, entries[s.Depth-1])
			mismatches, omitted = 0, 0
		}
		omitted += s.More
		if s.Match == descriptors.Nothing {
			mismatches++
		}
		if s.Match == descriptors.Nothing && mismatches > maxMismatches {
			omitted++
		} else {
			p.step(&s, rows[i], widths)
		}
		if last := i == len(d.Path)-1; omitted > 0 && (last || d.Path[i+1].Depth != s.Depth) {
			p.line(3, "… and %d more that do not match", omitted)
		}
	}
}

func (p *printer) step(s *descriptors.Step, cells [3]string, widths [3]int) {
	row := ""
	for i, cell := range cells {
		row += fmt.Sprintf("%-*s  ", widths[i], cell)
	}
	switch why := terminal.Visible(s.Why); {
	case s.Won:
		p.line(2, "%s", p.colors.Green("> "+row+"won: "+why))
	case s.Match == descriptors.Nothing:
		p.line(2, "%s", p.colors.Dim("  "+row+why))
	default:
		p.line(2, "  %s%s", row, why)
	}
}

func (p *printer) overlay(l *Limit) {
	if len(l.Overlay) > 0 {
		p.line(3, "overlay    %s", terminal.Visible(l.Overlay.String()))
	}
}

func (p *printer) limit(l *Limit, hits int64) {
	if l.Terms == nil {
		p.line(2, "%s", l.Title())
		p.overlay(l)
		return
	}
	p.line(2, "%s", p.colors.Bold(l.Title()))
	if l.ReplacedBy != "" {
		p.line(3, "not decided: %s replaces it", terminal.Visible(l.ReplacedBy))
	}
	p.line(3, "key        %s", terminal.Visible(l.Key))
	p.overlay(l)
	if g := l.Grant; g != nil {
		by := ""
		if g.Who != "" { // which a bound token is not told
			by = " by " + terminal.Visible(g.Who)
		}
		p.line(3, "grant      %s, in place of %s (%s%s)", terminal.Visible(g.String()), terminal.Visible(g.Of), terminal.Visible(g.ID), by)
	}
	if d := l.Period; d != nil {
		const layout = "2006-01-02 15:04 Z07:00"
		p.line(3, "period     %s to %s, %s", d.Began.Format(layout), d.Ends.Format(layout), terminal.Visible(d.Timezone))
	}
	if l.Pool != nil {
		p.line(3, "pool       %s, %s", terminal.Visible(l.Pool.Rule), l.Pool.Line())
		p.line(3, "  key      %s", terminal.Visible(l.Pool.Key))
		p.line(3, "borrowed   at most %s of it: %s", spaced(l.MaxBorrow), l.Borrowed.Line())
		p.line(3, "  key      %s", terminal.Visible(l.Borrowed.Key))
	}
	switch {
	case l.State == nil:
	case l.Cell == nil:
		p.line(3, "%s  %s", p.colors.Red("not known"), terminal.Visible(l.Error))
		p.line(3, "policy     %s decides now", terminal.Visible(l.Policy))
	default:
		p.line(3, "count      %d", l.Count)
		if l.Granted > 0 {
			p.line(3, "granted    %d", l.Granted)
		}
		p.line(3, "remaining  %d%s", l.Remaining, p.verdict(l, hits))
		if l.Threshold != "" {
			p.line(3, "threshold  %s is reached", spaced(l.Threshold))
		}
		if l.ReplacedBy == "" && (l.Never || l.Next != nil) {
			label := "next hit"
			if l.watched() { // the next hit passes in any case
				label = "would pass"
			}
			p.line(3, "%-10s %s", label, l.Wait())
		}
		p.line(3, "reset      %s", in(time.Duration(l.Reset)))
		if l.Policy != "" {
			p.line(3, "policy     %s, while the store does not answer", terminal.Visible(l.Policy))
		}
	}
}

// DidYouMean asks which of the suggestions was meant: "did you mean a, b or c?".
func DidYouMean(suggestions []string) string {
	return "did you mean " + spelling.Either(suggestions) + "?"
}

// Line is the limit in one line: "10 per minute, fixed_window: count 3, remaining 7, next hit now".
func (l *Limit) Line() string {
	switch {
	case l.Terms == nil || l.State == nil:
		return l.Title()
	case l.Cell == nil:
		return fmt.Sprintf("%s: not known: %s", l.Title(), terminal.Visible(l.Error))
	}
	return fmt.Sprintf("%s: count %d, remaining %d, next hit %s", l.Title(), l.Count, l.Remaining, l.Wait())
}

// Wait says when a request like the one asked about passes.
func (c *Cell) Wait() string {
	switch {
	case c.Never:
		return "never"
	case *c.Next == 0:
		return "now"
	}
	return in(time.Duration(*c.Next))
}

// in says a time from now. Above a second it is rounded up to tenths, so that it has passed
// when the text says so.
func in(d time.Duration) string {
	const tenth = 100 * time.Millisecond
	if d >= time.Second {
		d = (d + tenth - 1).Truncate(tenth)
	}
	return "in " + d.String()
}

// Title is the limit in words: "10 per minute, token_bucket, burst 20, plan free".
func (l *Limit) Title() string {
	words := "unlimited"
	if l.Terms != nil {
		words = l.Words
	}
	if l.Terms != nil && l.Name != "" {
		words += " (" + l.Name + ")"
	}
	if l.Plan != "" {
		words += ", plan " + l.Plan
	}
	return terminal.Visible(words)
}

// watched reports whether the limit is watched for the key and not enforced.
func (t *Terms) watched() bool { return t.Enforced != nil && !*t.Enforced }

// spaced is a percentage, or several, as texts for people have it: 10 %.
func spaced(percent string) string { return strings.ReplaceAll(percent, "%", " %") }

// verdict says behind the remaining hits how a request of that many hits would end.
func (p *printer) verdict(l *Limit, hits int64) string {
	if l.ReplacedBy != "" || hits <= l.Remaining {
		return ""
	}
	asked := "a hit"
	if hits > 1 {
		asked = fmt.Sprintf("a request of %d hits", hits)
	}
	if lends := func(from *Limit) bool { return from != nil && from.Cell != nil && hits <= from.Remaining }; lends(l.Pool) && lends(l.Borrowed) {
		return p.colors.Yellow(", so " + asked + " is borrowed")
	}
	switch now := l.Next != nil && *l.Next == 0; {
	case now && l.Overdraft > 0:
		return p.colors.Yellow(", so " + asked + " makes debt")
	case now: // a queue has room
		return p.colors.Yellow(", so " + asked + " waits for its turn")
	}
	if l.watched() {
		return p.colors.Yellow(", so " + asked + " would be denied")
	}
	return p.colors.Red(", so " + asked + " is denied")
}
