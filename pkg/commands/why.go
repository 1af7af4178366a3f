package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
)

const whyHelp = `It tells why a customer is denied: the counters of the descriptors that have the name as a
whole value, with the last change of each limit, then the denials, the outages and loads of
rules since the first of them, the grants in force, and the command to type next. The same
value under another key is a block of its own. If nothing has the name as a whole value, the
command lists the values that have it as a part, and tells nothing else. It asks all replicas
if the process has ADMIN_FLEET.

Exit codes:
  0  the name is known; with several replicas one answer is enough
  1  nothing is known of the name, or the admin API refused or could not be reached` + exitWrong + `
  rls why acme --token-file ops.token
  rls why acme --since 24h --format json --addr unix:/run/rls/admin.sock`

type whyCmd struct {
	Name string `arg:"" help:"The whole value of an entry, such as the name of a customer."`

	sinceFlag
	allAsk
}

// allAsk are the flags of a command that asks for all replicas, if the process has any.
type allAsk struct {
	Fleet bool `default:"true" negatable:"" help:"Ask for all replicas, if the process has ADMIN_FLEET. A replica that does not answer is named on stderr."`

	adminAsk
}

func (c *whyCmd) Run(ctx context.Context, k *kong.Kong) error {
	if c.Name == "" {
		return cli.UsageError("the name is empty: want the value to explain")
	}
	var w admin.Why
	path := admin.Query{Q: c.Name, Since: c.Since, Fleet: c.Fleet}.To("/v1/why")
	if err := c.post(ctx, c.Addr, path, nil, &w); err != nil {
		return err
	}
	warnOf(k.Stderr, w.Replicas, notAnswered)
	now := time.Now()
	asked := c.asked(&w, now)
	if w.Command != "" && c.Addr != defaults()["addr"] {
		w.Command += " --addr=" + c.Addr
	}
	err := c.print(k, &w, func(s *sheet) { s.addWhy(&w, asked, now) })
	if !w.Known() {
		advice := ""
		if len(w.Suggestions) > 0 {
			advice = "; " + explain.DidYouMean(w.Suggestions)
		}
		err = errors.Join(err, fmt.Errorf("nothing is known of %s, %s%s", descriptors.Printable(c.Name), asked, advice))
	}
	return err
}

// asked says since when the answer knows denials, and of how many replicas.
func (c *whyCmd) asked(w *admin.Why, now time.Time) string {
	told := "without a memory of denials (DENIALS_KEEP=0)"
	if !w.Remembered.IsZero() {
		told = "remembered since " + clock(c.from(w.Remembered, now), now)
	}
	return told + answeredOf(", ", w.Replicas, "")
}

func (s *sheet) addWhy(w *admin.Why, asked string, now time.Time) {
	block, entries := "", []descriptors.Entry(nil)
	for i := range w.Limits {
		l := &w.Limits[i]
		if is := l.Block(w.Q); is != block {
			block, entries = is, nil
			s.addf("%s\n", block)
		}
		if !slices.Equal(entries, l.Entries) {
			entries = l.Entries
			s.addf("  %s\n", descriptors.Argument(entries))
		}
		s.addWhyLimit(l, now)
	}
	s.addIf(len(w.Denials) > 0, "denials\n")
	for i := range w.Denials {
		s.addf("  ")
		s.addGroup(&w.Denials[i], now)
	}
	s.addIf(len(w.Events) > 0, "events\n")
	for _, e := range w.Events {
		s.addf("  %s  %s  %s%s\n", clock(e.Time, now), e.Kind, e.Text, onReplicas(&e, w.Replicas))
	}
	s.addIf(len(w.Grants) > 0, "grants in force\n")
	for _, g := range w.Grants {
		left := fmt.Sprintf("%d left, ", g.Left)
		if g.ID != "" {
			left = ""
		}
		s.addf("  %s", clock(g.Time, now))
		s.addIf(g.Who != "", " by %s", g.Who) // which a bound token is not told
		s.addf(": %s to %s (%s), %suntil %s%s\n", g.Words(), g.Rule, descriptors.Argument(g.Entries), left, clock(g.Ends, now), onReplica(g.Replica))
	}
	s.addIf(len(w.Candidates) > 0, "no key has the whole value %s; values that have it as a part:\n", w.Q)
	for _, candidate := range w.Candidates {
		s.addf("  %s\n", candidate)
	}
	s.addIf(w.Known(), "%s\n", asked)
	if w.Command != "" { // a bound token is told none
		s.addf("next: %s\n", w.Command)
	}
}

// barWidth is the number of characters of a bar.
const barWidth = 20

// addWhyLimit adds the counter of a limit, its last denial and its last change.
func (s *sheet) addWhyLimit(l *admin.WhyLimit, now time.Time) {
	s.addf("    %s  %s\n", l.Rule, l.Limit.Title())
	switch {
	case l.Used != nil:
		capacity := max(*l.Used+l.Remaining, 1)
		full := int(min(max(*l.Used, 0), capacity) * barWidth / capacity)
		s.addf("      %d / %d", *l.Used, l.Terms.Limit)
		s.addIf(l.Granted > 0, " + %d granted", l.Granted)
		s.addf("  %s%s  next hit %s", strings.Repeat("█", full), strings.Repeat("░", barWidth-full), l.Wait())
	case l.State != nil:
		s.addf("      the counter is not known: %s", l.Error)
	default:
		s.addf("      no counter")
	}
	s.addIf(!l.LastDenial.IsZero(), "  last denial %s (%d×)", clock(l.LastDenial, now), l.Denied)
	s.addf("\n")
	if l.Changed != nil {
		s.addf("      this limit changed at %s: %s\n", clock(l.Changed.Time, now), l.Changed.Words())
	}
}
