package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
)

type checkCmd struct {
	Dir string `arg:"" optional:"" help:"Folder with rules: every file in it and in its subfolders, not what stands beside it."`

	Format string `default:"text" enum:"text,json,github" help:"How the outcome is written: text, json, or github (annotations of a workflow)."`

	MergeDomainConfig     bool `env:"MERGE_DOMAIN_CONFIG" default:"false" help:"Let several files describe one domain."`
	RuntimeIgnoredotfiles bool `env:"RUNTIME_IGNOREDOTFILES" default:"false" help:"Ignore files and folders whose name starts with a dot."`

	// The reference's flags.
	ConfigDir          string `name:"config_dir" placeholder:"DIR" help:"The same as DIR."`
	MergeDomainConfigs bool   `name:"merge_domain_configs" help:"The same as --merge-domain-config."`
}

func (c *checkCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	if err := decoder.Wrong("MERGE_DOMAIN_CONFIG", "RUNTIME_IGNOREDOTFILES"); err != nil {
		return fmt.Errorf("wrong settings:\n%w", err)
	}
	dir := c.Dir
	if dir == "" {
		dir = c.ConfigDir
	}
	if dir == "" {
		return errors.New("check: name the folder with the rules")
	}
	o := outcome{Dir: dir, Files: []string{}}
	// A server takes a missing folder for one without rules; here it is a slip.
	if _, err := os.ReadDir(dir); err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	files, err := sources.Folder{Path: dir, IgnoreDotFiles: c.RuntimeIgnoredotfiles}.Read()
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	for _, file := range files {
		o.Files = append(o.Files, file.Name)
	}
	tree, warnings, err := descriptors.Load(files, descriptors.Options{MergeDomains: c.MergeDomainConfig || c.MergeDomainConfigs})
	o.Warnings = findings(warnings)
	var problems descriptors.Problems
	errors.As(err, &problems)
	o.Errors = findings(problems)
	if err == nil {
		o.Domains = len(tree.Domains())
	}
	if err := outcomes[c.Format](k.Stdout, &o); err != nil {
		return err
	}
	if len(o.Errors) > 0 {
		return fmt.Errorf("%s: the rules cannot be used", dir)
	}
	return nil
}

// outcome is what a check found.
type outcome struct {
	Dir      string    `json:"dir"`
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

func findings(problems []descriptors.Problem) []finding {
	found := make([]finding, len(problems))
	for i, p := range problems {
		found[i] = finding{p.File, p.Line, p.Column, p.Field, p.Message, p.Error()}
	}
	return found
}

// outcomes are the formats.
var outcomes = map[string]func(io.Writer, *outcome) error{
	"text":   writeText,
	"json":   writeJSON,
	"github": writeGitHub,
}

func writeText(w io.Writer, o *outcome) error {
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
	verdict := "no problems"
	if len(o.Errors) > 0 {
		verdict = fmt.Sprintf("errors %d", len(o.Errors))
	}
	fmt.Fprintf(&b, "%s: files %d, domains %d, %s\n", o.Dir, len(o.Files), o.Domains, verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeJSON(w io.Writer, o *outcome) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(o)
}

// writeGitHub writes workflow commands, which a pull request shows at the line.
func writeGitHub(w io.Writer, o *outcome) error {
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

// Those of a workflow command's bytes that would end it.
var (
	githubText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
