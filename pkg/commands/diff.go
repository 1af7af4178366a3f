package commands

import (
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/settings"
)

const diffHelp = `It prints how the limits of two sets of rules differ, a limit on each line: limits that came,
went or changed, with the file and the line of the new limit. Of a table it prints how many
rows came, went and changed.

Exit codes:
  0  the changes are printed
  1  rules have errors; with --stricter a limit came, lets fewer hits pass in the same time,
     or fewer at the same rate
  2  a flag or a setting is wrong, or a file cannot be read

Examples:
  rls diff rules.before rules
  git worktree add /tmp/main main && rls diff --stricter /tmp/main/config config`

type diffCmd struct {
	Old string `arg:"" help:"Folder with the old rules, or a file."`
	New string `arg:"" help:"Folder with the new rules, or a file."`

	Stricter   bool `help:"Fail if a limit became stricter, or came."`
	cli.Output `set:"output=list"`

	ruleFlags
}

// differences is the document of rls diff.
type differences struct {
	Changes []explain.Change `json:"changes"`
}

func (c *diffCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	options, err := c.ruleOptions(decoder)
	if err != nil {
		return err
	}
	before, err := c.load(c.Old, options)
	if err != nil {
		return err
	}
	after, err := c.load(c.New, options)
	if err != nil {
		return err
	}
	changes := explain.Changes(explain.LimitsOf(before), explain.LimitsOf(after))
	changes = append(changes, explain.TableChanges(before, after)...)
	err = c.Write(k.Stdout, differences{append([]explain.Change{}, changes...)}, func(w io.Writer) error {
		var failed error
		for _, change := range changes {
			_, err := fmt.Fprintln(w, terminal.Visible(change.String()))
			failed = errors.Join(failed, err)
		}
		return failed
	})
	stricter := 0
	for _, change := range changes {
		if change.Stricter {
			stricter++
		}
	}
	if err == nil && c.Stricter && stricter > 0 {
		err = fmt.Errorf("limits that came or became stricter: %d of %d changes", stricter, len(changes))
	}
	return err
}
