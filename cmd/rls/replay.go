package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/offline/replay"
	"example.org/rls/pkg/settings"
)

type replayCmd struct {
	Logs []string `arg:"" name:"log" help:"Logs in their order in time: files, also .gz, or - for the standard input."`

	Rules   string `required:"" placeholder:"PATH" help:"Folder with rules, or a file."`
	Against string `placeholder:"PATH" help:"Other rules, to compare with."`

	Domain     string   `help:"Domain of the requests; not needed if the rules have one domain, nor for decision logs of rls."`
	Descriptor []string `sep:"none" placeholder:"KEY=%FIELD%,..." help:"Entries of a descriptor, made of fields of a line: %field%, %object.field%; %% is a percent sign. JSON where a comma is part of a value, as for rls explain. Repeat the flag for several descriptors of one request. A line that lacks a field, or has - or null there, has not this descriptor."`
	Hits       string   `placeholder:"%FIELD%" help:"Cost of a request; 1 where the line has none."`
	Time       string   `default:"start_time" placeholder:"FIELD" help:"Field with the time of the request: RFC 3339, or seconds since 1970."`

	Format string `default:"text" enum:"text,json" help:"How the result is written: text or json."`

	Settings settings.RuleSettings `embed:"" group:"Settings of serve"`
}

// Help implements [kong.HelpProvider].
func (*replayCmd) Help() string {
	return `It reads Envoy's access logs in JSON, and decision logs of rls in JSON with entries
(LOG_DECISIONS_ENTRIES=true), which need no --descriptor. The clock is that of the log.
Nothing is asked and nothing is charged.

Exit codes:
  0  the log was replayed, also if some lines are malformed
  1  the replay failed
  2  a flag is wrong, the rules have errors, a log cannot be read, the logs have no lines,
     or all lines are malformed

Examples:
  rls replay --rules shop.yaml --descriptor 'remote_address=%downstream_remote_address%' access.log.gz
  rls replay --rules config --against new --format json decisions.log`
}

func (c *replayCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	if err := decoder.CheckRules(&c.Settings); err != nil {
		return usageError("%w", err)
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	told := 0
	o.Malformed = func(file string, line int64, why error) {
		if told++; told <= mostTold {
			_, _ = fmt.Fprintf(k.Stderr, "%s: %s:%d: %v\n", program, explain.Visible(file), line, why)
		}
	}
	r, err := replay.New(*o)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := c.playAll(r, k.Stderr, began); err != nil {
		return usageError("%w", err)
	}
	result := r.Result()
	result.Seconds = time.Since(began).Seconds()
	if n := r.Evicted(); n > 0 {
		_, _ = fmt.Fprintf(k.Stderr, "%s: %d counters were lost because there are too many keys: some denials are missing\n", program, n)
	}
	switch {
	case result.Lines == 0:
		return usageError("nothing to replay: %s has no lines", strings.Join(c.Logs, " "))
	case result.Malformed == result.Lines:
		return usageError("all lines are malformed: %d", result.Lines)
	case result.Requests == 0:
		_, _ = fmt.Fprintf(k.Stderr, "%s: no line makes a request: want the fields of a --descriptor in it, or entries (LOG_DECISIONS_ENTRIES=true) in a decision of rls\n", program)
	}
	if c.Format == "json" {
		return writeDocument(k.Stdout, result)
	}
	return writeReplay(k.Stdout, result)
}

// mostTold is the number of malformed lines that are shown.
const mostTold = 3

// options reads the flags and loads the rules. Its errors are usage errors.
func (c *replayCmd) options() (*replay.Options, error) {
	var o replay.Options
	var err error
	if o.Rules, err = c.load("--rules", c.Rules); err != nil {
		return nil, err
	}
	if c.Against != "" {
		if o.Against, err = c.load("--against", c.Against); err != nil {
			return nil, err
		}
	}
	for _, text := range c.Descriptor {
		d, err := replay.ParseDescriptor(text)
		if err != nil {
			return nil, usageError("--descriptor: %w", err)
		}
		o.Mapping.Descriptors = append(o.Mapping.Descriptors, d)
	}
	if c.Hits != "" {
		hits, err := replay.ParseHits(c.Hits)
		if err != nil {
			return nil, usageError("--hits: %w", err)
		}
		o.Mapping.Hits = &hits
	}
	if o.Mapping.Time, err = replay.ParseField(c.Time); err != nil {
		return nil, usageError("--time: %w", err)
	}
	o.Mapping.Domain, err = c.domain(o.Rules)
	return &o, err
}

// domain is the domain of the requests.
func (c *replayCmd) domain(rules *descriptors.Tree) (string, error) {
	var names []string
	for _, d := range rules.Domains() {
		names = append(names, d.Name)
	}
	switch {
	case len(names) == 0:
		return "", usageError("--rules: %s has no domain", c.Rules)
	case c.Domain != "" && !slices.Contains(names, c.Domain):
		return "", usageError("--domain: the rules have no domain %q; they have %s", c.Domain, strings.Join(names, ", "))
	case c.Domain != "" || len(c.Descriptor) == 0:
		return c.Domain, nil
	case len(names) == 1:
		return names[0], nil
	}
	return "", usageError("name a --domain: the rules have %s", strings.Join(names, ", "))
}

func (c *replayCmd) load(flag, path string) (*descriptors.Tree, error) {
	tree, err := loadRules(c.Settings, path)
	if err != nil {
		return nil, usageError("%s: %w", flag, err)
	}
	return tree, nil
}

// playAll replays the logs, and writes a line of progress to a terminal.
func (c *replayCmd) playAll(r *replay.Replay, progress io.Writer, began time.Time) error {
	stop := terminal.Progress(progress, func() string {
		read := float64(r.Bytes()) / (1 << 20)
		return fmt.Sprintf("%.0f MiB read, %.0f MiB/s", read, read/time.Since(began).Seconds())
	})
	defer stop()
	for _, name := range c.Logs {
		if err := c.play(r, name); err != nil {
			return err
		}
	}
	return nil
}

// play replays one log.
func (c *replayCmd) play(r *replay.Replay, name string) error {
	log := replay.Log{Name: name, Reader: os.Stdin}
	if name == "-" {
		log.Name = "<stdin>"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		log.Reader = file
	}
	in := bufio.NewReader(log.Reader)
	head, err := in.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", log.Name, err)
	}
	log.Reader = in
	if gzipped := []byte{0x1f, 0x8b}; bytes.Equal(head, gzipped) { // RFC 1952, section 2.3.1
		if log.Reader, err = gzip.NewReader(in); err != nil {
			return fmt.Errorf("%s: %w", log.Name, err)
		}
	}
	return r.Log(context.Background(), log)
}

// writeReplay writes the result for a person.
func writeReplay(w io.Writer, r *replay.Result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines, %d requests, %d malformed, %d denied (%s)", r.Lines, r.Requests, r.Malformed, r.Denied, percent(r.Denied, r.Requests))
	if r.From != nil {
		fmt.Fprintf(&b, ", %s to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	}
	b.WriteString("\n\n")
	writeReplayed(&b, r.Rules)
	if a := r.Against; a != nil {
		fmt.Fprintf(&b, "against the other rules: %d denied (%s), %d newly denied, %d newly allowed\n\n",
			a.Denied, percent(a.Denied, r.Requests), a.NewlyDenied, a.NewlyAllowed)
		writeReplayed(&b, a.Rules)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeReplayed(b *strings.Builder, rules []*replay.Rule) {
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
			explain.Visible(r.Rule), explain.Visible(r.File), r.Line, shadow)
	}
	_ = table.Flush()
	b.WriteByte('\n')
	for _, r := range rules {
		if len(r.Top) == 0 {
			continue
		}
		fmt.Fprintf(b, "%s: denied most\n", explain.Visible(r.Rule))
		for _, k := range r.Top {
			fmt.Fprintf(b, "%10d  %s\n", k.Denied, explain.Visible(descriptors.Pairs(k.Entries)))
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
func sparkline(hours []replay.Hour) (line, each string) {
	const columns = 60
	first, last := hours[0].Hour, hours[len(hours)-1].Hour
	count := int(last.Sub(first)/time.Hour) + 1
	step := (count + columns - 1) / columns
	sums := make([]int64, (count+step-1)/step)
	for _, h := range hours {
		sums[int(h.Hour.Sub(first)/time.Hour)/step] += h.Denied
	}
	most := slices.Max(sums)
	bars := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range sums {
		level := 0
		if n > 0 {
			level = 1 + int(n*int64(len(bars)-2)/most)
		}
		b.WriteRune(bars[level])
	}
	if step == 1 {
		return b.String(), "an hour"
	}
	return b.String(), fmt.Sprintf("%d hours", step)
}
