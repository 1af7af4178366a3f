package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/settings"
)

type checkCmd struct {
	Paths []string `arg:"" name:"path" optional:"" help:"Folders with rules (every file in them and in their subfolders, not the files beside them), files, or - for the standard input."`

	Format string `default:"text" enum:"text,json,github" help:"How the result is written: text, json, or github (annotations of a workflow)."`

	Settings settings.RuleSettings `embed:"" group:"Settings of serve"`

	// The flags of envoyproxy/ratelimit's ratelimit_config_check.
	ConfigDir          string `name:"config_dir" placeholder:"DIR" help:"A folder, the same as PATH."`
	MergeDomainConfigs bool   `name:"merge_domain_configs" help:"The same as --merge-domain-config."`
}

// Help implements [kong.HelpProvider].
func (*checkCmd) Help() string {
	return `Exit codes:
  0  the rules can be used
  1  the rules have errors
  2  a flag or a setting is wrong, or a file cannot be read

Examples:
  rls check config
  kubectl get configmap rules -o jsonpath='{.data.shop\.yaml}' | rls check -`
}

func (c *checkCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	if err := decoder.CheckRules(&c.Settings); err != nil {
		return usageError("%w", err)
	}
	paths := c.Paths
	if c.ConfigDir != "" {
		paths = append(paths, c.ConfigDir)
	}
	if len(paths) == 0 {
		return usageError("check: name folders or files with rules, or - for the standard input")
	}
	o := report{Dir: strings.Join(paths, " "), Files: []string{}}
	var files []yaml.Text
	for _, path := range paths {
		read, err := c.read(path)
		if err != nil {
			return usageError("read rules: %w", err)
		}
		files = append(files, read...)
	}
	for _, file := range files {
		o.Files = append(o.Files, file.Name)
	}
	options, err := ruleOptions(c.Settings)
	if err != nil {
		return err
	}
	options.MergeDomains = options.MergeDomains || c.MergeDomainConfigs
	tree, warnings, err := yaml.Load(files, options)
	o.Warnings = findings(warnings)
	var problems language.Problems
	errors.As(err, &problems)
	o.Errors = findings(problems)
	if err == nil {
		o.Domains = len(tree.Domains())
	}
	if err := formats[c.Format](k.Stdout, &o); err != nil {
		return err
	}
	if len(o.Errors) > 0 {
		return fmt.Errorf("%s: the rules cannot be used", o.Dir)
	}
	return nil
}

// read reads the files of one argument.
func (c *checkCmd) read(path string) ([]yaml.Text, error) {
	if path == "-" {
		content, err := io.ReadAll(os.Stdin)
		return []yaml.Text{{Name: "<stdin>", Content: content}}, err
	}
	return readRules(c.Settings, path)
}

// report is the result of the command.
type report struct {
	Dir      string    `json:"dir"` // the arguments
	Files    []string  `json:"files"`
	Domains  int       `json:"domains"` // 0 with errors
	Errors   []finding `json:"errors"`
	Warnings []finding `json:"warnings"`
}

type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	text    string
}

func findings(problems []language.Problem) []finding {
	found := make([]finding, len(problems))
	for i, p := range problems {
		found[i] = finding{p.File, p.Line, p.Column, p.Field, p.Message, p.Error()}
	}
	return found
}

// formats has a function for each format that writes a report.
var formats = map[string]func(io.Writer, *report) error{
	"text":   writeText,
	"json":   writeJSON,
	"github": writeGitHub,
}

func writeText(w io.Writer, o *report) error {
	var b strings.Builder
	for _, file := range o.Files {
		fmt.Fprintf(&b, "opening %s\n", file)
	}
	for _, warning := range o.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning.text)
	}
	for _, e := range o.Errors {
		fmt.Fprintln(&b, e.text)
	}
	problems := "no problems"
	if len(o.Errors) > 0 {
		problems = fmt.Sprintf("errors %d", len(o.Errors))
	}
	fmt.Fprintf(&b, "%s: files %d, domains %d, %s\n", o.Dir, len(o.Files), o.Domains, problems)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeJSON(w io.Writer, o *report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(o)
}

// writeGitHub writes workflow commands, which a pull request shows at the line.
func writeGitHub(w io.Writer, o *report) error {
	var b strings.Builder
	write := func(kind string, found []finding) {
		for _, f := range found {
			message := f.Message
			if f.Field != "" {
				message = f.Field + ": " + message
			}
			fmt.Fprintf(&b, "::%s file=%s,line=%d,col=%d::%s\n", kind, githubProperty.Replace(f.File), f.Line, f.Column, githubText.Replace(message))
		}
	}
	write("error", o.Errors)
	write("warning", o.Warnings)
	_, err := io.WriteString(w, b.String())
	return err
}

// They escape the bytes that would end a workflow command or one of its properties.
var (
	githubText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
