package main

import (
	"fmt"
	"io"
	"strings"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/github"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// report is the result of the command.
type report struct {
	Dir      string    `json:"dir"` // the arguments
	Files    []string  `json:"files"`
	Domains  int       `json:"domains"` // 0 with errors
	Errors   []finding `json:"errors"`
	Warnings []warning `json:"warnings"`
	Fixed    []finding `json:"fixed,omitempty"`

	texts []yaml.Text // of Files
}

type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	text    string
}

// warning is a finding with the name of its lint; "" if it has none.
type warning struct {
	finding
	Lint language.Lint `json:"lint"`
}

func findings(problems []language.Problem) []finding {
	found := make([]finding, len(problems))
	for i, p := range problems {
		found[i] = finding{p.File, p.Line, p.Column, p.Field, p.Message, p.Error()}
	}
	return found
}

func lintFindings(problems []language.Problem) []warning {
	found := make([]warning, len(problems))
	for i, f := range findings(problems) {
		found[i] = warning{f, problems[i].Lint}
	}
	return found
}

// write writes the report as text, json or github.
func (o *report) write(w io.Writer, format string) error {
	switch format {
	case "json":
		return cli.WriteJSON(w, o)
	case "github":
		return o.annotate(w)
	}
	return o.text(w)
}

func (o *report) text(w io.Writer) error {
	var b strings.Builder
	for _, file := range o.Files {
		fmt.Fprintf(&b, "opening %s\n", file)
	}
	for _, f := range o.Fixed {
		fmt.Fprintf(&b, "fixed: %s:%d: %s\n", f.File, f.Line, f.Message)
	}
	for _, w := range o.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w.text)
	}
	for _, e := range o.Errors {
		fmt.Fprintln(&b, e.text)
	}
	problems := "no problems"
	switch {
	case len(o.Errors) > 0:
		problems = fmt.Sprintf("errors %d", len(o.Errors))
	case len(o.Warnings) > 0:
		problems = fmt.Sprintf("warnings %d", len(o.Warnings))
	}
	fmt.Fprintf(&b, "%s: files %d, domains %d, %s\n", o.Dir, len(o.Files), o.Domains, problems)
	_, err := io.WriteString(w, b.String())
	return err
}

// annotate writes annotations of a workflow, which a pull request shows at their lines.
func (o *report) annotate(w io.Writer) error {
	var b strings.Builder
	annotate(&b, "error", o.Errors...)
	for _, w := range o.Warnings {
		if w.Lint != "" {
			w.Message += " [" + string(w.Lint) + "]"
		}
		annotate(&b, "warning", w.finding)
	}
	annotate(&b, "notice", o.Fixed...)
	_, err := io.WriteString(w, b.String())
	return err
}

// annotate writes an annotation of a kind for each finding.
func annotate(b *strings.Builder, kind string, found ...finding) {
	for _, f := range found {
		if f.Field != "" {
			f.Message = f.Field + ": " + f.Message
		}
		b.WriteString(github.Annotation(kind, f.File, f.Line, f.Column, f.Message))
	}
}
