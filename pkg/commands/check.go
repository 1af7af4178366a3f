package commands

import (
	"fmt"

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
