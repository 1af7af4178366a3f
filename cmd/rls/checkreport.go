package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

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

func writeJSON(w io.Writer, o *report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(o)
}

// writeGitHub writes workflow commands, which a pull request shows at the line.
func writeGitHub(w io.Writer, o *report) error {
	var b strings.Builder
	write := func(kind string, f finding, message string) {
		if f.Field != "" {
			message = f.Field + ": " + message
		}
		b.WriteString(github.Annotation(kind, f.File, f.Line, f.Column, message))
	}
	for _, f := range o.Errors {
		write("error", f, f.Message)
	}
	for _, w := range o.Warnings {
		message := w.Message
		if w.Lint != "" {
			message += " [" + string(w.Lint) + "]"
		}
		write("warning", w.finding, message)
	}
	for _, f := range o.Fixed {
		write("notice", f, f.Message)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
