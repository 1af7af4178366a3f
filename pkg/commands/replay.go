package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/offline/replay"
	"example.org/rls/pkg/settings"
)

const replayHelp = `It reads Envoy's access logs in JSON, and decision logs of rls in JSON with entries
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

type replayCmd struct {
	Logs []string `arg:"" name:"log" help:"Logs: files, also .gz, or - for the standard input. The file with the oldest first line comes first."`

	Rules   string `required:"" placeholder:"PATH" help:"Folder with rules, or a file."`
	Against string `placeholder:"PATH" help:"Other rules, to compare with."`

	Domain     string   `help:"Domain of the requests; not needed if the rules have one domain, nor for decision logs of rls."`
	Descriptor []string `sep:"none" placeholder:"KEY=%FIELD%,..." help:"Entries of a descriptor, made of fields of a line: %field%, %object.field%; %% is a percent sign. JSON where a comma is part of a value, as for rls explain. Repeat the flag for several descriptors of one request. A line that lacks a field, or has - or null there, has not this descriptor."`
	Hits       string   `placeholder:"%FIELD%" help:"Cost of a request; 1 where the line has none."`
	Time       string   `default:"start_time" placeholder:"FIELD" help:"Field with the time of the request: RFC 3339, or seconds since 1970."`

	cli.Output `set:"output=result"`

	ruleFlags
}

func (c *replayCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	o, err := c.options(decoder)
	if err != nil {
		return err
	}
	told := 0
	o.Malformed = func(file string, line int64, why error) {
		if told++; told <= maxTold {
			_, _ = fmt.Fprintf(k.Stderr, "%s: %s:%d: %v\n", cli.ProgramName, terminal.Visible(file), line, why)
		}
	}
	r := replay.New(*o)
	began := time.Now()
	stop := terminal.Progress(k.Stderr, func() string {
		read := float64(r.Bytes()) / (1 << 20)
		return fmt.Sprintf("%.0f MiB read, %.0f MiB/s", read, read/time.Since(began).Seconds())
	})
	err = r.Files(c.Logs)
	stop()
	if err != nil {
		return cli.UsageError("%w", err)
	}
	result := r.Result()
	result.Seconds = time.Since(began).Seconds()
	if n := r.Evicted(); n > 0 {
		_, _ = fmt.Fprintf(k.Stderr, "%s: %d counters were lost because there are too many keys: some denials are missing\n", cli.ProgramName, n)
	}
	switch {
	case result.Lines == 0:
		return cli.UsageError("nothing to replay: %s has no lines", strings.Join(c.Logs, " "))
	case result.Malformed == result.Lines:
		return cli.UsageError("all lines are malformed: %d", result.Lines)
	case result.Requests == 0:
		_, _ = fmt.Fprintf(k.Stderr, "%s: no line makes a request: want the fields of a --descriptor in it, or entries (LOG_DECISIONS_ENTRIES=true) in a decision of rls\n", cli.ProgramName)
	}
	return c.Write(k.Stdout, result, result.Text)
}

// maxTold is the number of malformed lines that are shown.
const maxTold = 3

// options reads the flags and loads the rules. Its errors are usage errors.
func (c *replayCmd) options(decoder *settings.Decoder) (*replay.Options, error) {
	var o replay.Options
	options, err := c.ruleOptions(decoder)
	if err != nil {
		return nil, err
	}
	if o.Rules, err = c.load(c.Rules, options); err != nil {
		return nil, cli.UsageError("--rules: %w", err)
	}
	if c.Against != "" {
		if o.Against, err = c.load(c.Against, options); err != nil {
			return nil, cli.UsageError("--against: %w", err)
		}
	}
	for _, text := range c.Descriptor {
		d, err := replay.ParseDescriptor(text)
		if err != nil {
			return nil, cli.UsageError("--descriptor: %w", err)
		}
		o.Mapping.Descriptors = append(o.Mapping.Descriptors, d)
	}
	if c.Hits != "" {
		if o.Mapping.Hits, err = replay.ParseHits(c.Hits); err != nil {
			return nil, cli.UsageError("--hits: %w", err)
		}
	}
	if o.Mapping.Time, err = replay.ParseField(c.Time); err != nil {
		return nil, cli.UsageError("--time: %w", err)
	}
	o.Mapping.Domain, err = c.domain(o.Rules)
	return &o, err
}

func (c *replayCmd) domain(rules *descriptors.Tree) (string, error) {
	names := domainNames(rules)
	switch {
	case len(names) == 0:
		return "", cli.UsageError("--rules: %s has no domain", c.Rules)
	case c.Domain != "" && !slices.Contains(names, c.Domain):
		return "", cli.UsageError("--domain: the rules have no domain %q; they have %s", c.Domain, strings.Join(names, ", "))
	case c.Domain != "" || len(c.Descriptor) == 0:
		return c.Domain, nil
	}
	return OnlyDomain(names)
}

func domainNames(rules *descriptors.Tree) []string {
	var names []string
	for _, d := range rules.Domains() {
		names = append(names, d.Name)
	}
	return names
}
