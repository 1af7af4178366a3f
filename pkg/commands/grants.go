package commands

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/service/operate"
)

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
		if ids {
			s.addf("ID\t")
		}
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
			if ids {
				s.addf("%s\t", g.ID)
			}
			s.addf("%s\t%s%s\n", g.Rule, g.Key, onReplica(g.Replica))
		}
	})
}
