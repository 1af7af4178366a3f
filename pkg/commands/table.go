package commands

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/settings"
)

const tableHelp = `A table is a CSV file that a rate_limit names (docs/plans.md). Without --rules the plans that it
names and the limits that it changes are not known, and only the rest is checked.

Exit codes:
  0  the table can be used
  1  the table or the rules have errors, or no rule names the table
  2  a flag or a setting is wrong, or a file cannot be read

Examples:
  rls table lint config/tenants.csv
  rls table lint --rules config --format=github config/tenants.csv
  rls table lint https://example.org/tenants.csv`

type tableCmd struct {
	Verb string `arg:"" name:"lint" enum:"lint" help:"lint: print every problem of the table."`
	File string `arg:"" help:"The table: a file, or an address."`

	Rules []string `placeholder:"PATH" help:"Folders or files with the rules that name the table."`
	problemFlags
}

func (c *tableCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	c.Settings.FetchTables = c.Settings.FetchTables || strings.Contains(c.File, "://")
	options, err := c.ruleOptions(decoder)
	if err != nil {
		return err
	}
	report, err := c.checkTable(c.File, c.Rules, options)
	if err != nil {
		return err
	}
	if err := report.write(k.Stdout, &c.problemFlags); err != nil {
		return err
	}
	if len(report.Errors) > 0 {
		return fmt.Errorf("%s: the table cannot be used", c.File)
	}
	return nil
}
