package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/descriptors"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
)

const checkHelp = `Exit codes:
  0  the rules can be used
  1  the rules have errors, or with --strict warnings
  2  a flag or a setting is wrong, a file cannot be read, or only tests of rules are named

Examples:
  rls check config
  rls check --strict --format=github config
  kubectl get configmap rules -o jsonpath='{.data.shop\.yaml}' | rls check -`

type checkCmd struct {
	Paths []string `arg:"" name:"path" optional:"" help:"Folders with rules (every file in them and in their subfolders, not the files beside them), files, or - for the standard input."`

	Format string `default:"text" enum:"text,json,github" help:"How the result is written: text, json, or github (annotations of a workflow)."`

	Strict bool `help:"Fail if there are warnings."`
	Fix    bool `help:"Rewrite the files where that is safe: remove each value that is empty. Comments and all other bytes stay."`

	Settings settings.RuleSettings `embed:"" group:"Settings of serve"`

	// The flags of envoyproxy/ratelimit's ratelimit_config_check.
	ConfigDir          string `name:"config_dir" placeholder:"DIR" help:"A folder, the same as PATH."`
	MergeDomainConfigs bool   `name:"merge_domain_configs" help:"The same as --merge-domain-config."`
}

// Run checks the rules and prints the report.
func (c *checkCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	if err := decoder.CheckRules(&c.Settings); err != nil {
		return cli.UsageError("%w", err)
	}
	paths := c.Paths
	if c.ConfigDir != "" {
		paths = append(paths, c.ConfigDir)
	}
	if len(paths) == 0 {
		return cli.UsageError("check: name folders or files with rules, or - for the standard input")
	}
	if c.Fix && slices.Contains(paths, "-") {
		return cli.UsageError("check: --fix cannot rewrite the standard input; name a file or a folder")
	}
	o, err := c.check(paths)
	if err != nil {
		return err
	}
	if c.Fix {
		fixed, err := o.fix()
		if err != nil {
			return err
		}
		if len(fixed) > 0 { // look again: warnings have other lines now
			if o, err = c.check(paths); err != nil {
				return err
			}
		}
		o.Fixed = findings(fixed)
	}
	if err := o.write(k.Stdout, c.Format); err != nil {
		return err
	}
	switch {
	case len(o.Errors) > 0:
		return fmt.Errorf("%s: the rules cannot be used", o.Dir)
	case c.Strict && len(o.Warnings) > 0:
		return fmt.Errorf("%s: the rules have warnings, which --strict does not allow", o.Dir)
	}
	return nil
}

// check loads the files of the paths, each file once.
func (c *checkCmd) check(paths []string) (*report, error) {
	o := &report{Dir: strings.Join(paths, " "), Files: []string{}}
	var links language.Problems
	seen := map[string]bool{}
	for _, path := range paths {
		read, err := c.read(path, func(link string) {
			links = append(links, danglingLink(link))
		})
		if err != nil {
			return nil, cli.UsageError("read rules: %w", err)
		}
		for _, file := range read {
			if name := filepath.Clean(file.Name); !seen[name] {
				seen[name] = true
				o.texts = append(o.texts, file)
				o.Files = append(o.Files, file.Name)
			}
		}
	}
	if len(o.texts) == 0 && strings.HasSuffix(paths[0], sources.TestFile) {
		return nil, cli.UsageError("read rules: %w", errTests(paths[0]))
	}
	options, err := ruleOptions(c.Settings)
	if err != nil {
		return nil, err
	}
	options.MergeDomains = options.MergeDomains || c.MergeDomainConfigs
	options.Lint = time.Now()
	tree, warnings, err := yaml.Load(o.texts, options)
	o.Warnings = lintFindings(append(links, warnings...))
	var problems language.Problems
	errors.As(err, &problems)
	o.Errors = findings(problems)
	if err == nil {
		o.Domains = len(tree.Domains())
	}
	return o, nil
}

func danglingLink(path string) language.Problem {
	target, _ := os.Readlink(path)
	return language.Problem{
		Position: descriptors.Position{File: path, Line: 1, Column: 1},
		Message:  fmt.Sprintf("is a link to %q, which does not exist: no rules are read from it; remove the link, or restore the file", target),
		Lint:     language.DanglingLink,
	}
}

// read reads the files of one argument.
func (c *checkCmd) read(path string, dangling func(string)) ([]yaml.Text, error) {
	if path == "-" {
		content, err := io.ReadAll(os.Stdin)
		return []yaml.Text{{Name: "<stdin>", Content: content}}, err
	}
	return readRules(c.Settings, path, dangling)
}

// fix removes the keys from the files that the lint empty-value warns of, and
// returns what it did.
func (o *report) fix() (fixed []language.Problem, err error) {
	for _, file := range o.texts {
		var keys []descriptors.Position
		for _, w := range o.Warnings {
			if w.File == file.Name && w.Lint == language.EmptyValue {
				keys = append(keys, descriptors.Position{File: w.File, Line: w.Line, Column: w.Column})
			}
		}
		content, removed := yaml.RemoveEmpty(file, keys)
		if len(removed) == 0 {
			continue
		}
		if err := os.WriteFile(file.Name, content, 0o666); err != nil {
			return nil, fmt.Errorf("fix: %w", err)
		}
		for _, key := range slices.Backward(removed) {
			fixed = append(fixed, language.Problem{Position: key, Message: "removed the key value, which was empty: the rule means the same"})
		}
	}
	return fixed, nil
}
