package commands

import (
	"context"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
)

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
