package commands

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service/operate"
)

const grantHelp = `The hits are given for the window that is running, or until the bucket is full again,
by every limit of the request or by the one of --only; on a terminal the command asks which
one. They may exceed the limit: one grant has at most 10 times the limit, and 11 times the
limit may remain. If that is exceeded for one of the limits, nothing is granted. The answer
tells until when. rls grants lists the grants in force.

With --for or --until one limit is raised for the caller until then, in all processes with the
same store within a second, and after their restarts: by --hits in each window, or to
--limit, at most to 10 times its rate. The counter of a window stays. A bucket begins full, and
so does a --limit with another window; at the end the old counter counts on. A later
grant to the same counter takes the place of the earlier one; rls revoke ends it. The longest
is 31 days. memcached keeps none.

Exit codes:
  0  the hits are given
  1  the request has no counter, or the admin API refused it or could not be reached` + exitWrong + `
  rls grant --domain shop --descriptor plan=free,user=ann --hits 50 --reason 'ticket 4711'
  rls grant --domain shop --descriptor api_key=k1 --hits 500 --only 20000/day
  rls grant --domain shop --descriptor plan=free,user=ann --limit 600/minute --until 09:00`

type grantCmd struct {
	Hits   *int64         `placeholder:"N" help:"Hits that may pass besides the hits that remain, at most 10 times the limit. With --for or --until so many more in each window."`
	For    *time.Duration `placeholder:"DURATION" help:"How long the limit is raised, such as 6h."`
	Until  *string        `placeholder:"TIME" help:"Until when the limit is raised: a time of the clock here, such as 09:00, today or tomorrow, or one such as 2026-11-27T09:00:00Z. With --for or this, --limit takes the place of the rule's limit."`
	Only   *string        `placeholder:"NAME|LIMIT" help:"The one of several limits that the grant is for: its name, or its text such as '20000 per day' or 20000/day."`
	Reason string         `placeholder:"TEXT" help:"Reason for the grant, for the audit."`

	adminCall
}

func (c *grantCmd) Run(ctx context.Context, k *kong.Kong) error {
	body := &admin.GrantRequest{Reason: c.Reason}
	if err := c.fill(body, time.Now()); err != nil {
		return err
	}
	request, err := c.asked(ctx)
	if err != nil {
		return err
	}
	body.Question = *request
	if body.Only == "" && body.For == "" && body.Until == "" {
		if body.Only, err = c.choose(ctx, k, body); err != nil {
			return err
		}
	}
	return c.change(ctx, k, "granted", "/v1/grant", body)
}

// fill fills in what the flags say. Its errors are usage errors.
func (c *grantCmd) fill(body *admin.GrantRequest, now time.Time) error {
	switch {
	case c.Only != nil && *c.Only == "":
		return cli.UsageError("--only is empty: want a limit's name, or its text such as 20000/day")
	case c.Only != nil:
		body.Only = *c.Only
	}
	switch limit := (c.For != nil || c.Until != nil) && c.Limit != nil; {
	case c.For != nil && c.Until != nil:
		return cli.UsageError("--for and --until are both given: want one of them")
	case limit && c.Hits != nil:
		return cli.UsageError("--limit and --hits are both given: want one of them with --for or --until")
	case limit:
		rate, err := descriptors.ParseLimit(*c.Limit)
		if err != nil {
			return cli.UsageError("--limit: %w", err)
		}
		body.Limit = &admin.Rate{Rate: rate}
		c.Limit = nil
	case c.Hits == nil:
		return cli.UsageError("--hits is missing: want the hits that may pass, such as --hits 50")
	case *c.Hits < 1:
		return cli.UsageError("--hits is %d: want at least 1", *c.Hits)
	default:
		body.Grant = *c.Hits
	}
	switch {
	case c.For != nil && *c.For <= 0:
		return cli.UsageError("--for is %v: want a duration above 0, such as 6h", *c.For)
	case c.For != nil:
		body.For = c.For.String()
	case c.Until != nil:
		until, err := untilOf(*c.Until, now)
		if err != nil {
			return cli.UsageError("--until: %w", err)
		}
		body.Until = until.Format(time.RFC3339)
	}
	return nil
}

// untilOf is the next time of the clock that a text such as 09:00 says, in the time zone of now, or the
// time of RFC 3339 that it is, which is after now.
func untilOf(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if at, err := time.Parse(layout, text); err == nil {
			y, m, d := now.Date()
			until := time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			if !until.After(now) {
				until = time.Date(y, m, d+1, at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			}
			return until, nil
		}
	}
	until, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		return until, fmt.Errorf("%q is no time: want one such as 09:00 or 2026-11-27T09:00:00Z", text)
	case !until.After(now):
		return until, fmt.Errorf("%s is past: it is %s now", text, now.Format(time.RFC3339))
	}
	return until, nil
}

// choose asks on a terminal which one of several limits a grant is for; "" is all of them.
func (c *grantCmd) choose(ctx context.Context, k *kong.Kong, body *admin.GrantRequest) (string, error) {
	if !terminal.Is(os.Stdin) {
		return "", nil
	}
	var doc explain.Document
	if err := c.post(ctx, c.Addr, "/v1/get", &admin.LookRequest{Question: body.Question}, &doc); err != nil {
		return "", err
	}
	var choices []string
	for _, d := range doc.Descriptors {
		for _, l := range d.Limits {
			if l.Terms == nil || l.ReplacedBy != "" {
				continue
			}
			rate, _, _ := strings.Cut(l.Words, ",")
			if l.Name != "" {
				rate = l.Name
			}
			if !slices.Contains(choices, rate) {
				choices = append(choices, rate)
			}
		}
	}
	if len(choices) < 2 {
		return "", nil
	}
	visible := terminal.Visible(strings.Join(choices, ", "))
	_, _ = fmt.Fprintf(k.Stderr, "The request has several limits: %s.\nWhich one is the grant for (or all)? ", visible)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	answer = strings.TrimSpace(answer)
	switch {
	case slices.Contains(choices, answer):
		return answer, nil
	case answer == "all":
		return "", nil
	case err != nil && answer == "":
		return "", cli.UsageError("no limit was chosen: --only names one of %s", visible)
	}
	return "", cli.UsageError("%q is none of the limits: want all, or one of %s", terminal.Visible(answer), visible)
}

const grantsHelp = `It lists the grants until a time, with the IDs by which rls revoke ends them, and the grants
that the process has made since its start and that are not used up, ended or reset. Several of
these to one counter are one row: HITS is the hits of the last grant and the unused hits of
the grants before it, and LEFT is the hits not used so far.

Exit codes:
  0  the process answered, with or without grants; with --fleet one answer is enough
  1  the admin API refused or could not be reached, or the store cannot tell the unused hits` + exitWrong + `
  rls grants --token-file ops.token
  rls grants --fleet --addr rls.example:6071 --format json`

type grantsCmd struct{ fleetAsk }

func (c *grantsCmd) Run(ctx context.Context, k *kong.Kong) error {
	var in admin.Grants
	return c.show(ctx, k, "/v1/grants", admin.Query{Fleet: c.Fleet}, &in, &in.Replicas, func(s *sheet) {
		if len(in.Grants) == 0 {
			s.addf("no grant is in force\n")
			return
		}
		ids := slices.ContainsFunc(in.Grants, func(g operate.GrantInForce) bool { return g.ID != "" })
		s.addf("TIME\tWHO\tHITS\tLEFT\tENDS\t")
		s.addIf(ids, "ID\t")
		s.addf("RULE\tKEY\n")
		for _, g := range in.Grants {
			gives, left := strconv.FormatInt(g.Hits, 10), strconv.FormatInt(g.Left, 10)
			if g.ID != "" {
				gives, left = g.Words(), ""
			}
			if g.Error != "" {
				left = g.Error
			}
			s.addf("%s\t%s\t%s\t%s\t%s\t", g.Time.Local().Format(time.DateTime), g.Who, gives, left, g.Until.Local().Format(time.DateTime))
			s.addIf(ids, "%s\t", g.ID)
			s.addf("%s\t%s%s\n", g.Rule, g.Key, onReplica(g.Replica))
		}
	})
}

const revokeHelp = `It ends a grant until a time before that time, in all processes with the same store within a
second. rls grants lists the grants with their IDs.

Exit codes:
  0  the grant has ended
  1  no such grant is in force, or the admin API refused or could not be reached` + exitWrong + `
  rls revoke 3fk7qz2m5a --reason 'ticket 4711 is done'`

type revokeCmd struct {
	admin.RevokeRequest
	adminAsk
}

func (c *revokeCmd) Run(ctx context.Context, k *kong.Kong) error {
	var done admin.Changes
	if err := c.post(ctx, c.Addr, "/v1/revoke", &c.RevokeRequest, &done); err != nil {
		return err
	}
	return c.print(k, &done, func(s *sheet) {
		for _, change := range done.Changes {
			s.addf("revoked %s: %s to %s (key %s)\n", c.ID, change.Grant.String(), change.Rule, change.Key)
		}
	})
}
