package commands

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/settings"
)

const checkHelp = `Exit codes:
  0  the rules can be used
  1  the rules have errors, or with --strict warnings, or --for ratelimit has found something
  2  a flag or a setting is wrong, a file cannot be read, or only tests of rules or tables are named

Examples:
  rls check config
  rls check --strict --format=github config
  rls check --overlay overlay.yaml config
  rls check --for ratelimit config
  kubectl get configmap rules -o jsonpath='{.data.shop\.yaml}' | rls check -`

type checkCmd struct {
	Paths []string `arg:"" name:"path" optional:"" help:"Folders with rules, files, or - for the standard input. Of a folder every file counts, also of its subfolders, not those beside it."`

	problemFlags

	Strict bool   `help:"Fail if there are warnings."`
	For    string `default:"rls" enum:"rls,ratelimit" help:"ratelimit: also fail for each field and value that envoyproxy/ratelimit refuses or ignores, while both run on these files."`

	// The flags of envoyproxy/ratelimit's ratelimit_config_check.
	ConfigDir          string `name:"config_dir" placeholder:"DIR" help:"A folder, the same as PATH."`
	MergeDomainConfigs bool   `name:"merge_domain_configs" help:"The same as --merge-domain-config."`
}

func (c *checkCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	options, err := c.ruleOptions(decoder)
	if err != nil {
		return err
	}
	paths := c.Paths
	if c.ConfigDir != "" {
		paths = append(paths, c.ConfigDir)
	}
	if len(paths) == 0 {
		return cli.UsageError("check: name folders or files with rules, or - for the standard input")
	}
	options.MergeDomains = options.MergeDomains || c.MergeDomainConfigs
	options.Lint, options.ForRatelimit = true, c.For == "ratelimit"
	if c.Settings.OverlayFile != "" {
		paths = append(paths, c.Settings.OverlayFile)
	}
	report, err := c.check(paths, options)
	if err != nil {
		return err
	}
	if wrong := noRules(paths[0]); wrong != nil && len(report.Files) == 0 {
		return cli.UsageError("read rules: %w", wrong)
	}
	if err := report.write(k.Stdout, &c.problemFlags); err != nil {
		return err
	}
	switch {
	case len(report.Errors) > 0 && report.tree != nil && c.For == "ratelimit":
		return fmt.Errorf("%s: envoyproxy/ratelimit cannot use these rules as they are meant", report.Dir)
	case len(report.Errors) > 0:
		return fmt.Errorf("%s: the rules cannot be used", report.Dir)
	case c.Strict && len(report.Warnings) > 0:
		return fmt.Errorf("%s: the rules have warnings, which --strict does not allow", report.Dir)
	}
	return nil
}

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
