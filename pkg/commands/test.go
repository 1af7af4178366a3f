package commands

import (
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/offline/ruletest"
	"example.org/rls/pkg/settings"
)

const testHelp = `A test file says which requests come when, and which answers they must get. Time is simulated, and no store is needed:

  rules: [shop.yaml]
  tests:
    - name: a free user gets 10 a minute
      steps:
        - repeat: 10
          request: {domain: shop, descriptors: [{plan: free, user: ann}]}
          expect: {code: OK}
        - at: 1s
          request: {domain: shop, descriptors: [{plan: free, user: ann}]}
          expect: {code: OVER_LIMIT, rule: shop.plan_free.user, retry_after: 59s}

Exit codes:
  0  every test passed
  1  a test failed, or the coverage is too low
  2  a flag, a test file or its rules are wrong, or there is no test to run

Examples:
  rls test config
  rls test --coverage --min-coverage 100% rules
  rls test --run 'free user' --format junit rules > report.xml`

type testCmd struct {
	Paths []string `arg:"" name:"path" help:"Test files, or folders: every file in them and in their subfolders whose name ends in _test.yaml."`

	Only        string `name:"run" placeholder:"REGEXP" help:"Only run tests whose name matches."`
	Format      string `default:"text" enum:"text,json,junit,github" help:"How the result is written: text, json, junit (XML), or github (annotations of a workflow)."`
	Coverage    bool   `help:"List the rules that no test matched."`
	MinCoverage string `placeholder:"PERCENT" help:"Fail if less than this share of the rules was matched, such as 100%; implies --coverage."`

	ruleFlags
}

func (c *testCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	options, least, err := c.options()
	if err != nil {
		return err
	}
	files, err := c.open(decoder, k.Stdout)
	if err != nil {
		return err
	}
	report := ruletest.Run(files, options)
	if len(report.Tests) == 0 {
		return cli.UsageError("--run %s: no test has a name that matches", c.Only)
	}
	if err := c.write(k, report); err != nil {
		return err
	}
	if report.Coverage != nil && !report.Coverage.AtLeast(least) {
		err = errors.New("the coverage is " + strconv.FormatFloat(report.Coverage.Percent, 'g', -1, 64) + " %, and --min-coverage wants " + c.MinCoverage)
	}
	if err == nil && report.Failed > 0 {
		err = cli.ErrFailed
	}
	return err
}

// options reads the flags. least is --min-coverage in percent.
func (c *testCmd) options() (options ruletest.Options, least float64, err error) {
	options.Coverage = c.Coverage || c.MinCoverage != ""
	if options.Only, err = regexp.Compile(c.Only); err != nil {
		return options, 0, cli.UsageError("--run: %w", err)
	}
	if c.MinCoverage != "" {
		least, err = strconv.ParseFloat(strings.TrimSuffix(c.MinCoverage, "%"), 64)
		if err != nil || !(least >= 0 && least <= 100) {
			return options, 0, cli.UsageError("--min-coverage: %q is wrong: want a share from 0%% to 100%%", c.MinCoverage)
		}
	}
	return options, least, nil
}

// open reads all test files and their rules. Its error has every problem of all of
// them; with --format=github they are written as annotations, too.
func (c *testCmd) open(decoder *settings.Decoder, stdout io.Writer) ([]*ruletest.File, error) {
	options, err := c.ruleOptions(decoder)
	if err != nil {
		return nil, err
	}
	files, err := ruletest.Open(c.Paths, c.readAll, options)
	if err == nil {
		return files, nil
	}
	var problems language.Problems
	if errors.As(err, &problems) && c.Format == "github" {
		if _, err := io.WriteString(stdout, annotations("error", problems.Told())); err != nil {
			return nil, err
		}
	}
	return nil, cli.UsageError("%w", err)
}

// write writes the report. JUnit's XML has no place for the coverage, so that goes to stderr.
func (c *testCmd) write(k *kong.Kong, report *ruletest.Report) error {
	text, beside := report.Text, ""
	switch c.Format {
	case "json":
		return cli.WriteJSON(k.Stdout, report)
	case "github":
		text = report.GitHub
	case "junit":
		text, beside = report.JUnit, report.Coverage.Text()
	}
	_, err := io.WriteString(k.Stdout, text())
	_, _ = io.WriteString(k.Stderr, beside)
	return err
}
