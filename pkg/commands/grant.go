package commands

import (
	"context"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin"
)

const grantHelp = `The hits are given for the window that is running, or until the bucket is full again,
by every limit of the request or by the one of --only. They may exceed the limit: one grant
has at most 10 times the limit, and 11 times the limit may remain. If that is exceeded for
one of the limits, nothing is granted. rls grants lists the grants in force.

Exit codes:
  0  the hits are given
  1  the request has no counter, or the admin API refused it or could not be reached` + exitWrong + `
  rls grant --domain shop --descriptor plan=free,user=ann --hits 50 --reason 'ticket 4711'
  rls grant --domain shop --descriptor api_key=k1 --hits 500 --only 20000/day`

type grantCmd struct {
	Hits   int64   `required:"" placeholder:"N" help:"Hits that may pass besides the hits that remain, at most 10 times the limit."`
	Only   *string `placeholder:"NAME|LIMIT" help:"The one of several limits that the grant is for: its name, or its text such as '20000 per day' or 20000/day."`
	Reason string  `placeholder:"TEXT" help:"Reason for the grant, for the audit."`

	adminCall
}

func (c *grantCmd) Run(ctx context.Context, k *kong.Kong) error {
	if c.Hits < 1 {
		return cli.UsageError("--hits is %d: want at least 1", c.Hits)
	}
	if c.Only == nil {
		c.Only = new(string)
	} else if *c.Only == "" {
		return cli.UsageError("--only is empty: want a limit's name, or its text such as 20000/day")
	}
	request, err := c.asked(ctx)
	if err != nil {
		return err
	}
	return c.change(ctx, k, "granted", "/v1/grant", &admin.GrantRequest{Question: *request, Grant: c.Hits, Only: *c.Only, Reason: c.Reason})
}
