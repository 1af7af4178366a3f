package main

import (
	"context"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
)

type grantCmd struct {
	requestFlags
	Hits   int64  `required:"" placeholder:"N" help:"Hits that may pass besides the hits that remain, at most 10 times the limit."`
	Reason string `placeholder:"TEXT" help:"Reason for the grant, for the audit."`

	outputFlags
	adminFlags
}

// Help implements [kong.HelpProvider].
func (*grantCmd) Help() string {
	return `The hits are given for the window that is running, or until the bucket is full again,
by every limit of the request. They may exceed the limit, up to 11 times the limit.

Exit codes:
  0  the hits are given
  1  the request has no counter, or the admin API refused it or could not be reached
  2  a flag is wrong, or a file cannot be read

Example:
  rls grant --domain shop --descriptor plan=free,user=ann --hits 50 --reason 'ticket 4711'`
}

func (c *grantCmd) Run(k *kong.Kong) error {
	if c.Hits < 1 {
		return usageError("--hits is %d: want at least 1", c.Hits)
	}
	request, client, err := c.prepare(&c.requestFlags)
	if err != nil {
		return err
	}
	request.Hits, request.Reason = c.Hits, c.Reason
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	var changes admin.Changes
	if err := client.post(ctx, "/v1/grant", request, &changes); err != nil {
		return err
	}
	return c.write(k.Stdout, "granted", &changes)
}
