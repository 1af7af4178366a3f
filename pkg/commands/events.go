package commands

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
)

const eventsHelp = `It lists the newest first: start and drain of the process, servers of the store that went
away (store-away) and came back (store-back), rules that were loaded and refused (rules-loaded,
rules-refused), certificates that were renewed, grants and resets. A process keeps the last
1,000 since its start.

Exit codes:
  0  the process answered, with or without events; with --fleet one answer is enough` + exitRefused + `
  rls events --token-file ops.token
  rls events --since 24h --n 50 --format json --addr rls.example:6071`

type eventsCmd struct {
	sinceFlag
	N int `name:"n" default:"200" min:"1" max:"1000" help:"Most events, 1 to 1000."`

	fleetAsk
}

func (c *eventsCmd) Run(ctx context.Context, k *kong.Kong) error {
	query := url.Values{"n": {strconv.Itoa(c.N)}, "since": {c.since()}}
	var history admin.History
	return c.show(ctx, k, "/v1/history", query, &history, &history.Replicas, func(s *sheet) {
		for _, e := range history.Events {
			s.addf("%s  %-13s  %s%s\n", e.Time.Local().Format(time.DateTime), e.Kind, e.Text, onReplica(e.Replica))
		}
	})
}
