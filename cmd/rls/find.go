package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
)

const findHelp = `It asks a running process for two lists: the rules in which the text can be the whole
value of an entry, and the keys with the text in a key or a value, with their counters
now. Keys are those that 'rls top' and 'rls denials' remember. Upper and lower case differ.

Exit codes:
  0  a rule or a key is found
  1  nothing is found, or the admin API refused or could not be reached
  2  a flag is wrong, or a file cannot be read

Examples:
  rls find ann --token-file ops.token
  rls find 10.1.2.3 --n 5 --format json --addr unix:/run/rls/admin.sock`

type findCmd struct {
	Text string `arg:"" help:"The value, such as the name of a customer."`
	N    int    `name:"n" default:"20" help:"Most rules and most keys, 1 to 100."`

	Addr string `default:"localhost:6071" help:"Where the admin API listens: HOST:PORT, or unix:PATH."`
	adminAccess
	adminAnswer
}

// Run prints what is found.
func (c *findCmd) Run(ctx context.Context, k *kong.Kong) error {
	switch {
	case c.Text == "":
		return cli.UsageError("the text is empty: want the value to find")
	case c.N < 1 || c.N > admin.MaxFound:
		return cli.UsageError("--n is %d: want 1 to %d", c.N, admin.MaxFound)
	}
	var found admin.Found
	path := "/v1/find?" + url.Values{"q": {c.Text}, "n": {strconv.Itoa(c.N)}}.Encode()
	if err := c.post(ctx, c.Addr, c.Timeout, path, nil, &found); err != nil {
		return err
	}
	err := c.Write(k.Stdout, &found, func(w io.Writer) error { return writeFound(w, &found) })
	if len(found.Places)+len(found.Keys) == 0 {
		err = errors.Join(err, fmt.Errorf("no rule and no key has %s", terminal.Visible(c.Text)))
	}
	return err
}

// writeFound writes what was found for a person.
func writeFound(w io.Writer, found *admin.Found) error {
	var b strings.Builder
	if len(found.Places) > 0 {
		b.WriteString("rules\n")
	}
	rows := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, p := range found.Places {
		place := descriptors.Position{File: p.File, Line: p.Line}.Place()
		fmt.Fprintf(rows, "  %s\t%s\t%s\t%s\n", p.Match, terminal.Visible(p.Domain), terminal.Visible(descriptors.Pairs(p.Path)), terminal.Visible(place))
	}
	_ = rows.Flush() // to memory
	for i, key := range found.Keys {
		if i == 0 {
			b.WriteString("keys\n")
		}
		fmt.Fprintf(&b, "  %s  %s", terminal.Visible(key.Domain), terminal.Visible(descriptors.Pairs(key.Entries)))
		if key.Denied > 0 {
			fmt.Fprintf(&b, "  denied %d in the last minute", key.Denied)
		}
		if key.LastDenial != nil {
			fmt.Fprintf(&b, "  last denial %s", key.LastDenial.Local().Format(time.RFC3339))
		}
		b.WriteByte('\n')
		for _, l := range key.Limits {
			fmt.Fprintf(&b, "    %s: %s\n", terminal.Visible(l.Rule), l.Line())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
