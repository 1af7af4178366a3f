package main

import (
	"context"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	pb "example.org/rls/pkg/admin/adminpb"
)

const grantHelp = `The hits are given for the window that is running, or until the bucket is full again,
by every limit of the request. They may exceed the limit, up to 11 times the limit.

Exit codes:
  0  the hits are given
  1  the request has no counter, or the admin API refused it or could not be reached
  2  a flag is wrong, or a file cannot be read

Example:
  rls grant --domain shop --descriptor plan=free,user=ann --hits 50 --reason 'ticket 4711'`

type grantCmd struct {
	Hits   int64  `required:"" placeholder:"N" help:"Hits that may pass besides the hits that remain, at most 10 times the limit."`
	Reason string `placeholder:"TEXT" help:"Reason for the grant, for the audit."`

	adminCall
}

// Run grants the hits and prints the changes.
func (c *grantCmd) Run(ctx context.Context, k *kong.Kong) error {
	if c.Hits < 1 {
		return cli.UsageError("--hits is %d: want at least 1", c.Hits)
	}
	descriptors, err := c.descriptors(ctx)
	if err != nil {
		return err
	}
	return c.change(ctx, k, "granted", "/v1/grant",
		&pb.GrantRequest{Domain: c.Domain, Descriptors: descriptors, Hits: c.Hits, Reason: c.Reason})
}
