package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/document"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
)

const findHelp = `It tells the rules that could apply, because the text can be the whole value of an entry, and
the keys of recent requests with the text in a key or a value, with their counters now. It
knows the keys that 'rls top' and 'rls denials' remember, of all replicas if the process has ADMIN_FLEET. Upper and
lower case differ.

Exit codes:
  0  a rule or a key is found; with several replicas one answer is enough
  1  nothing is found, or the admin API refused or could not be reached` + exitWrong + `
  rls find ann --token-file ops.token
  rls find 10.1.2.3 --n 5 --format json --addr unix:/run/rls/admin.sock`

type findCmd struct {
	Text string `arg:"" help:"The value, such as the name of a customer."`
	N    int    `name:"n" default:"20" min:"1" max:"100" help:"Most rules and most keys, 1 to 100."`

	allAsk
}

func (c *findCmd) Run(ctx context.Context, k *kong.Kong) error {
	if c.Text == "" {
		return cli.UsageError("the text is empty: want the value to find")
	}
	var found admin.Found
	query := admin.Query{Q: c.Text, N: c.N, Fleet: c.Fleet}
	err := c.show(ctx, k, "/v1/find", query, &found, &found.Replicas, func(s *sheet) { s.addFound(&found) })
	if err == nil && len(found.Places)+len(found.Keys) == 0 {
		err = fmt.Errorf("no rule and no key has %s%s", terminal.Visible(c.Text), answeredOf(" (", found.Replicas, ")"))
	}
	return err
}

func (s *sheet) addFound(found *admin.Found) {
	s.addIf(len(found.Places) > 0, "rules\n")
	for _, p := range found.Places {
		place := document.Position{File: p.File, Line: p.Line}.Place()
		s.addf("  %s\t%s\t%s\t%s\n", p.Match, p.Domain, descriptors.Pairs(p.Path), place)
	}
	s.addIf(len(found.Keys) > 0, "keys\n")
	for _, key := range found.Keys {
		s.addf("  %s  %s", key.Domain, descriptors.Argument(key.Entries))
		s.addIf(key.Denied > 0, "  denied %d in the last minute", key.Denied)
		s.addIf(!key.LastDenial.IsZero(), "  last denial %s", key.LastDenial.Local().Format(time.RFC3339))
		s.addf("\n")
		for _, l := range key.Limits {
			s.addf("    %s: %s\n", l.Rule, l.Line())
		}
	}
	some := len(found.Places)+len(found.Keys) > 0
	s.addIf(some && len(found.Replicas) > 0, "%s\n", answeredOf("", found.Replicas, ""))
}
