package commands

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/service/operate"
)

const resetHelp = `Exit codes:
  0  the counters are reset, or without --yes counted
  1  there is no such counter or rule, or the admin API refused it or could not be reached` + exitWrong + `
  rls reset --domain shop --descriptor plan=free,user=ann --reason 'ticket 4711'
  rls reset --domain shop --rule shop.plan_free.user --all-matching
  rls reset --domain shop --rule shop.plan_free.user --all-matching --yes`

type resetCmd struct {
	Rule        string `placeholder:"RULE" help:"Path of a rule, such as shop.plan_free.user, for --all-matching."`
	AllMatching bool   `help:"Reset the counters of all values of --rule. Without --yes the command counts them and changes nothing. Memory and Redis can list counters, memcached cannot."`
	Yes         bool   `help:"Do what --all-matching would do."`
	Reason      string `placeholder:"TEXT" help:"Reason for the reset, for the audit."`

	adminCall
}

func (c *resetCmd) Run(ctx context.Context, k *kong.Kong) error {
	switch {
	case c.AllMatching && (len(c.Descriptor) > 0 || c.Limit != nil || c.Pool != nil):
		return cli.UsageError("--all-matching is for a --rule: want no --descriptor, no --pool and no --limit beside it")
	case c.AllMatching && c.Rule == "":
		return cli.UsageError("--all-matching: name the --rule, such as --rule shop.plan_free.user")
	case c.AllMatching:
		return c.resetMatching(ctx, k)
	case c.Rule != "" || c.Yes:
		return cli.UsageError("--rule and --yes are for --all-matching")
	}
	request, err := c.asked(ctx)
	if err != nil {
		return err
	}
	return c.change(ctx, k, "reset", "/v1/reset", &admin.ResetRequest{Question: *request, Reason: c.Reason})
}

// resetMatching resets all counters of a rule, or counts them. It shows its progress
// on a terminal, and takes as long as the store needs.
func (c *resetCmd) resetMatching(ctx context.Context, k *kong.Kong) error {
	if err := c.fillDomain(ctx, c.Addr, &c.Domain); err != nil {
		return err
	}
	api, err := c.client(c.Addr)
	if err != nil {
		return err
	}
	request := &admin.ResetRequest{Question: operate.About(c.Domain), Rule: c.Rule, AllMatching: true, DryRun: !c.Yes, Reason: c.Reason}
	var latest atomic.Pointer[admin.Progress]
	latest.Store(new(admin.Progress))
	stop := terminal.Progress(k.Stderr, func() string {
		p := latest.Load()
		return fmt.Sprintf("%d keys looked at, %d counters matched, %d reset", p.Scanned, p.Matched, p.Changed)
	})
	err = client.Stream(ctx, api, "/v1/reset", request, nil, func(p *admin.Progress) error {
		latest.Store(p)
		return nil
	})
	stop()
	done := latest.Load().Done
	switch {
	case err != nil:
		return err
	case done == nil:
		return api.Failed(errors.New("the answer ended before the reset did"))
	}
	warnOf(k.Stderr, done.Replicas, notTold)
	return c.print(k, done, func(s *sheet) {
		s.addf("matched %d\n", *done.Matched)
		if done.DryRun {
			s.addf("nothing is changed: --yes resets these counters\n")
		} else {
			s.addf("reset %d\n", done.Changed)
		}
	})
}

// change has the admin API change counters, and writes the changes, each on a line, and on
// stderr the replicas that were not told. It fails if a counter was not changed.
func (c *adminCall) change(ctx context.Context, k *kong.Kong, done, path string, body any) error {
	var changes admin.Changes
	if err := c.post(ctx, c.Addr, path, body, &changes); err != nil {
		return err
	}
	if changes.Warning != "" {
		_, _ = fmt.Fprintf(k.Stderr, "rls: %s\n", terminal.Visible(changes.Warning))
	}
	warnOf(k.Stderr, changes.Replicas, notTold)
	var failed error
	for _, change := range changes.Changes {
		if change.Error != "" {
			failed = errors.Join(failed, fmt.Errorf("%s is not changed: %s", terminal.Visible(change.Rule), change.Error))
		}
	}
	return errors.Join(c.print(k, &changes, func(s *sheet) { s.addChanges(&changes, done) }), failed)
}

// addChanges adds a line for each counter that was changed, and one that says what a grant until a time
// raises, or until when the change holds.
func (s *sheet) addChanges(changes *admin.Changes, done string) {
	for _, c := range changes.Changes {
		if c.Error != "" {
			continue
		}
		s.addf("%s %s (key %s): %v → %v\n", done, c.Rule, c.Key, c.Before, c.After)
		switch {
		case c.Grant != nil:
			s.addf("  %s (%s)\n", c.Grant.String(), c.Grant.ID)
			s.addIf(c.Note != "", "  %s\n", c.Note)
		case !c.Until.IsZero():
			s.addf("  until %s\n", c.Until.Local().Format("2006-01-02 15:04:05 MST"))
		}
	}
}
