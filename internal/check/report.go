package check

import (
	"fmt"
	"io"
	"strings"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/github"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// Report is the document of `rls check`.
type Report struct {
	Dir      string    `json:"dir"` // the paths
	Files    []string  `json:"files"`
	Domains  int       `json:"domains"` // 0 with errors
	Errors   []finding `json:"errors"`
	Warnings []finding `json:"warnings"`
	Fixed    []finding `json:"fixed,omitempty"`

	texts []yaml.Text // of Files
}

type finding struct {
	File    string      `json:"file"`
	Line    int         `json:"line"`
	Column  int         `json:"column"`
	Field   string      `json:"field,omitempty"`
	Message string      `json:"message"`
	Lint    *rules.Lint `json:"lint,omitempty"` // of a warning; "" if it has no name

	text string
}

func findings(problems rules.Problems) []finding {
	found := make([]finding, len(problems))
	for i, p := range problems {
		found[i] = finding{p.File, p.Line, p.Column, p.Field, p.Message, nil, p.Error()}
	}
	return found
}

// Write writes the report in a format: text, json, or github for annotations of a workflow.
func (r *Report) Write(w io.Writer, format string) error {
	var b strings.Builder
	switch format {
	case "json":
		return cli.WriteJSON(w, r)
	case "github":
		annotate(&b, "error", r.Errors)
		annotate(&b, "warning", r.Warnings)
		annotate(&b, "notice", r.Fixed)
	default:
		r.text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) text(b *strings.Builder) {
	for _, file := range r.Files {
		fmt.Fprintf(b, "opening %s\n", file)
	}
	for _, f := range r.Fixed {
		fmt.Fprintf(b, "fixed: %s:%d: %s\n", f.File, f.Line, f.Message)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(b, "warning: %s\n", w.text)
	}
	for _, e := range r.Errors {
		fmt.Fprintln(b, e.text)
	}
	problems := "no problems"
	switch {
	case len(r.Errors) > 0:
		problems = fmt.Sprintf("errors %d", len(r.Errors))
	case len(r.Warnings) > 0:
		problems = fmt.Sprintf("warnings %d", len(r.Warnings))
	}
	fmt.Fprintf(b, "%s: files %d, domains %d, %s\n", r.Dir, len(r.Files), r.Domains, problems)
}

// Annotations are annotations of a workflow, which a pull request shows at their lines.
func Annotations(problems rules.Problems) string {
	var b strings.Builder
	annotate(&b, "error", findings(problems))
	return b.String()
}

func annotate(b *strings.Builder, kind string, found []finding) {
	for _, f := range found {
		if f.Field != "" {
			f.Message = f.Field + ": " + f.Message
		}
		if f.Lint != nil && *f.Lint != "" {
			f.Message += " [" + string(*f.Lint) + "]"
		}
		b.WriteString(github.Annotation(kind, f.File, f.Line, f.Column, f.Message))
	}
}
