package commands

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
)

const denialsHelp = `It shows who was denied, the last one first: a line for each key and limit, with the
first and the last denial and their number. --all shows each denial that a running
process remembers (DENIALS_KEEP): when, the rule, the key, the limit, and how long the
same request had to wait. --follow prints new ones as they come, until Ctrl-C. Above
2,000 denials a second a row stands for several, and says so.

Exit codes:
  0  the process answered, with or without denials, or Ctrl-C ended --follow; with --fleet one
     answer is enough
  1  the admin API refused, or could not be reached, or ended the stream` + exitWrong + `
  rls denials ann --since 1h --token-file ops.token
  rls denials ann --all
  rls denials --follow --rule shop.plan_free.user --format json`

type denialsCmd struct {
	Text string `arg:"" optional:"" help:"A part of a key or a value; without it all keys are shown."`

	sinceFlag
	Rule   string `placeholder:"RULE" help:"Path of a rule, such as shop.plan_free.user; without it all rules are shown."`
	N      int    `name:"n" min:"1" max:"10000" help:"Most lines, 1 to 10000; 100 without it."`
	All    bool   `help:"A line for each denial."`
	Follow bool   `help:"Print new denials as they come, until Ctrl-C; with --since or --n past ones before them. With --format=json each is a document on its own line."`

	fleetAsk
}

func (c *denialsCmd) Run(ctx context.Context, k *kong.Kong) error {
	query := admin.Query{Q: c.Text, Rule: c.Rule, Since: c.Since, N: c.N}
	switch {
	case c.Follow && c.Fleet && os.Getenv("RLS_FLEET") != "true":
		return cli.UsageError("--fleet is for past denials: want it without --follow, which follows one process")
	case c.Follow:
		return c.follow(ctx, k, query)
	}
	query.Group, query.Fleet = !c.All, c.Fleet
	var list admin.DenialsOfAll
	return c.show(ctx, k, "/v1/denials", query, &list, &list.Replicas, func(s *sheet) {
		now := time.Now()
		for i := range list.Denials {
			s.addDenial(&list.Denials[i], now)
		}
		for i := range list.Groups {
			s.addGroup(&list.Groups[i], now)
		}
		if len(list.Denials)+len(list.Groups) == 0 {
			c.addNone(s, &list, now)
		}
	})
}

// addNone says that there is no denial, of whom, and since when one would be known.
func (c *denialsCmd) addNone(s *sheet, list *admin.DenialsOfAll, now time.Time) {
	since := c.from(list.Remembered, now)
	of, replicas := "", answeredOf(", ", list.Replicas, "")
	if c.Text != "" {
		of = " of " + c.Text
	}
	if c.Rule != "" {
		of += " by " + c.Rule
	}
	s.addf("no denial%s since %s (%d remembered%s)\n", of, clock(since, now), list.Kept, replicas)
}

// clock is the time of day, with the day if that is not within 24 hours.
func clock(at, now time.Time) string {
	if now.Sub(at).Abs() > 24*time.Hour {
		return at.Local().Format(time.DateTime)
	}
	return at.Local().Format(time.TimeOnly)
}

// addGroup adds a line such as 02:40:08–03:12:28  shop.user  user=ann  96×  60 per minute (per-minute).
func (s *sheet) addGroup(g *denials.Group, now time.Time) {
	s.addf("%s–%s\t%s\t%s\t%d×\t%s", clock(g.First, now), clock(g.Last, now), g.Rule, descriptors.Argument(g.Entries), g.Count, g.Words)
	s.addNames(g.Name, g.Plan)
	s.addf("\n")
}

// addNames adds the name and the plan of a limit where it has them: " (per-minute), plan pro".
func (s *sheet) addNames(name, plan string) {
	s.addIf(name != "", " (%s)", name)
	s.addIf(plan != "", ", plan %s", plan)
}

// follow prints new denials until ctx ends, and with --since or --n past ones before them, the
// oldest first.
func (c *denialsCmd) follow(ctx context.Context, k *kong.Kong, query admin.Query) error {
	api, err := c.client(c.Addr)
	if err != nil {
		return err
	}
	line := func(d *denials.Denial) error {
		return c.print(k, d, func(s *sheet) { s.addDenial(d, time.Now()) })
	}
	var past admin.DenialsOfAll
	list := func() error {
		if c.Since == nil && c.N == 0 {
			return nil
		}
		if err := c.ask(ctx, api, query.To("/v1/denials"), nil, &past); err != nil {
			return err
		}
		for i := range slices.Backward(past.Denials) {
			if err := line(&past.Denials[i]); err != nil {
				return err
			}
		}
		return nil
	}
	stream := admin.Query{Q: c.Text, Rule: c.Rule, Follow: true}
	// The past is asked for when the stream has begun, so that no denial falls between them.
	err = client.Stream(ctx, api, stream.To("/v1/denials"), nil, list, func(d *denials.Denial) error {
		if slices.ContainsFunc(past.Denials, func(p denials.Denial) bool { return p.Time.Equal(d.Time) && reflect.DeepEqual(p, *d) }) {
			return nil
		}
		return line(d)
	})
	switch {
	case ctx.Err() != nil: // Ctrl-C
		return nil
	case err == nil:
		err = api.Failed(errors.New("the process ended the stream"))
	}
	return err
}

// addDenial adds a line such as 03:12:07 shop.user user=ann 10 per minute, wait 41s.
func (s *sheet) addDenial(d *denials.Denial, now time.Time) {
	s.addf("%s %s %s %s", clock(d.Time, now), d.Rule, descriptors.Argument(d.Entries), d.Words)
	s.addNames(d.Name, d.Plan)
	unit := time.Second // a shorter wait is in milliseconds
	if time.Duration(d.RetryAfter) < unit {
		unit = time.Millisecond
	}
	s.addf(", wait %v", (time.Duration(d.RetryAfter) + unit - 1).Truncate(unit))
	s.addIf(d.Cost > 1, ", cost %d", d.Cost)
	s.addIf(d.Policy != "counted", ", by policy %s", d.Policy)
	s.addIf(d.Shadow, ", shadow")
	s.addIf(d.Sampled > 1, ", 1 of about %d denials", d.Sampled)
	s.addf("%s\n", onReplica(d.Replica))
}
