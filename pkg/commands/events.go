package commands

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
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
	query := admin.Query{N: c.N, Since: c.Since, Fleet: c.Fleet}
	var history admin.History
	return c.show(ctx, k, "/v1/history", query, &history, &history.Replicas, func(s *sheet) {
		for _, e := range history.Events {
			s.addf("%s  %-13s  %s%s\n", e.Time.Local().Format(time.DateTime), e.Kind, e.Text, onReplicas(&e, history.Replicas))
		}
		if len(history.Events) == 0 {
			since, now := "", time.Now()
			if c.Since != nil {
				since = " since " + clock(now.Add(-*c.Since), now)
			}
			s.addf("no event is remembered%s%s\n", since, answeredOf(", ", history.Replicas, ""))
		}
	})
}

// onReplicas names the replicas of an event at its end, or how many of all they are; "" of one process.
func onReplicas(e *events.Event, all []client.Replica) string {
	if len(e.Replicas) == 0 {
		return onReplica(e.Replica)
	}
	if len(e.Replicas) == len(all) {
		return fmt.Sprintf("  (%d of %d replicas)", len(all), len(all))
	}
	return onReplica(strings.Join(e.Replicas, ", "))
}
