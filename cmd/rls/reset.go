package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
)

type resetCmd struct {
	requestFlags
	Rule        string `placeholder:"RULE" help:"Path of a rule, such as shop.plan_free.user, for --all-matching."`
	AllMatching bool   `help:"Reset the counters of all values of --rule. Without --yes the command counts them and changes nothing. Memory and Redis can list counters, memcached cannot."`
	Yes         bool   `help:"Do what --all-matching would do."`
	Reason      string `placeholder:"TEXT" help:"Reason for the reset, for the audit."`

	outputFlags
	adminFlags
}

// Help implements [kong.HelpProvider].
func (*resetCmd) Help() string {
	return `Exit codes:
  0  the counters are reset, or without --yes counted
  1  there is no such counter or rule, or the admin API refused it or could not be reached
  2  a flag is wrong, or a file cannot be read

Examples:
  rls reset --domain shop --descriptor plan=free,user=ann --reason 'ticket 4711'
  rls reset --domain shop --rule shop.plan_free.user --all-matching
  rls reset --domain shop --rule shop.plan_free.user --all-matching --yes`
}

func (c *resetCmd) Run(ctx context.Context, k *kong.Kong) error {
	switch {
	case c.AllMatching && len(c.Descriptor) > 0:
		return usageError("--all-matching is for a --rule: want no --descriptor beside it")
	case c.AllMatching && c.Rule == "":
		return usageError("--all-matching: name the --rule, such as --rule shop.plan_free.user")
	case c.AllMatching:
		return c.resetMatching(ctx, k)
	case c.Rule != "" || c.Yes:
		return usageError("--rule and --yes are for --all-matching")
	}
	request, client, err := c.prepare(&c.requestFlags)
	if err != nil {
		return err
	}
	request.Reason = c.Reason
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var changes admin.Changes
	if err := client.post(ctx, "/v1/reset", request, &changes); err != nil {
		return err
	}
	return c.write(k.Stdout, "reset", &changes)
}

// resetMatching resets all counters of a rule, or counts them. It shows its progress
// on a terminal, and takes as long as the store needs.
func (c *resetCmd) resetMatching(ctx context.Context, k *kong.Kong) error {
	client, err := c.open()
	if err != nil {
		return err
	}
	request := adminRequest{Domain: c.Domain, Rule: c.Rule, AllMatching: true, DryRun: !c.Yes, Reason: c.Reason}
	var latest atomic.Pointer[admin.Progress]
	latest.Store(new(admin.Progress))
	stop := terminal.Progress(k.Stderr, func() string {
		p := latest.Load()
		return fmt.Sprintf("%d keys looked at, %d counters matched, %d reset", p.Scanned, p.Matched, p.Changed)
	})
	err = client.stream(ctx, "/v1/reset", request, func(data []byte) error {
		p := new(admin.Progress)
		if err := json.Unmarshal(data, p); err != nil {
			return err
		}
		latest.Store(p)
		return nil
	})
	stop()
	done := latest.Load().Done
	switch {
	case err != nil:
		return err
	case done == nil:
		return client.failed(errors.New("the answer ended before the reset did"))
	case c.Format == "json":
		return writeDocument(k.Stdout, done)
	case done.DryRun:
		_, err = fmt.Fprintf(k.Stdout, "matched %d\nnothing is changed: --yes resets these counters\n", *done.Matched)
	default:
		_, err = fmt.Fprintf(k.Stdout, "matched %d\nreset %d\n", *done.Matched, done.Changed)
	}
	return err
}

// write writes the changes, each on a line. It fails if a counter was not changed.
func (f *outputFlags) write(w io.Writer, done string, changes *admin.Changes) error {
	var failed []error
	var b strings.Builder
	for _, change := range changes.Changes {
		if change.Error != "" {
			failed = append(failed, fmt.Errorf("%s is not changed: %s", printable(change.Rule), change.Error))
			continue
		}
		fmt.Fprintf(&b, "%s %s (key %s): count %d → %d, remaining %d → %d\n", done, printable(change.Rule), printable(change.Key),
			change.Before.Count, change.After.Count, change.Before.Remaining, change.After.Remaining)
	}
	write := func() error { _, err := io.WriteString(w, b.String()); return err }
	if f.Format == "json" {
		write = func() error { return writeDocument(w, changes) }
	}
	return errors.Join(write(), errors.Join(failed...))
}

// printable is the text, quoted if it has characters that a terminal does not print.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted[1:len(quoted)-1] != text {
		return quoted
	}
	return text
}
