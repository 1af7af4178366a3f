package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/sources"
)

// problemFlags are the flags of a command that reports the problems of rules.
type problemFlags struct {
	Format  string `default:"text" enum:"text,json,github" help:"How the result is written: text, json, or github (annotations of a workflow)."`
	Verbose bool   `help:"As text, also name each file that is read."`
	ruleFlags
}

// check loads the files of the paths, each file once; - is the standard input. Its errors are usage
// errors.
func (f *problemFlags) check(paths []string, options rules.Options) (*report, error) {
	r := &report{Dir: strings.Join(paths, " "), Files: []string{}, Warnings: []warning{}}
	var texts []yaml.Text
	var warnings rules.Problems
	seen := map[string]bool{}
	told := sources.Folder{Dangling: func(link string) {
		target, _ := os.Readlink(link)
		warnings.AddLint(rules.DanglingLink, document.Position{File: link, Line: 1, Column: 1}, "", "is a link to %q, which does not exist: no rules are read from it; remove the link, or restore the file", target)
	}}
	if options.ForRatelimit {
		told.LeftOut = func(path string) {
			warnings.AddLint(rules.ForRatelimit, document.Position{File: path, Line: 1, Column: 1}, "", "is no file of rules: envoyproxy/ratelimit reads every file of the folder as rules and refuses this one; keep it in another folder while both run")
		}
		if name := f.Settings.OverlayFile; name != "" {
			warnings.AddLint(rules.ForRatelimit, document.Position{File: name, Line: 1, Column: 1}, "overlays", "are unknown to envoyproxy/ratelimit, which has the rules without them")
		}
	}
	for _, path := range paths {
		read, err := f.readPath(path, told)
		if err != nil {
			return nil, cli.UsageError("read rules: %w", err)
		}
		for _, file := range read {
			if name := filepath.Clean(file.Name); !seen[name] {
				seen[name] = true
				texts = append(texts, file)
				r.Files = append(r.Files, file.Name)
			}
		}
	}
	var more rules.Problems
	var err error
	r.tree, more, err = yaml.Load(texts, options)
	var problems rules.Problems
	errors.As(err, &problems)
	forRatelimit := func(w rules.Problem) bool { return w.Lint == rules.ForRatelimit }
	warnings = append(warnings, more...)
	for _, w := range warnings {
		if forRatelimit(w) {
			problems = append(problems, w)
		}
	}
	warnings = slices.DeleteFunc(warnings, forRatelimit).Told()
	r.warned, r.Errors = warnings, append(rules.Problems{}, problems.Told()...)
	for _, w := range warnings {
		r.Warnings = append(r.Warnings, warning{w, w.Lint})
	}
	if err == nil {
		r.Domains = len(r.tree.Domains())
		r.tree.Each(r.addOverlaid)
	}
	return r, nil
}

// addOverlaid adds the limits of a rule that have fields from overlays.
func (r *report) addOverlaid(_ *descriptors.Domain, rule *descriptors.Rule) {
	if rule.Laid != nil {
		r.Overlaid = append(r.Overlaid, overlaid{rule.Path, "unlimited", rule.Pos.File, rule.Pos.Line, rule.Laid})
	}
	for i := range rule.Limits {
		if l := &rule.Limits[i]; l.Laid != nil {
			r.Overlaid = append(r.Overlaid, overlaid{rule.Path, l.Title(), rule.Pos.File, rule.Pos.Line, l.Laid})
		}
	}
}

// checkTable checks a table, and the rules of the paths if there are any, one of which must name it.
// Its errors are usage errors.
func (f *problemFlags) checkTable(name string, paths []string, options rules.Options) (*report, error) {
	table, err := rules.OpenTable(name)
	if strings.Contains(name, "://") {
		table, err = options.Fetched(name, 0)
	}
	if err != nil {
		return nil, cli.UsageError("read table: %w", err)
	}
	problems := table.Problems
	r := &report{Files: []string{}, Errors: append(rules.Problems{}, problems.Told()...), Warnings: []warning{}}
	if len(paths) > 0 {
		if r, err = f.check(paths, options); err != nil {
			return nil, err
		}
	}
	path, _ := filepath.Abs(name)
	named := false // by a rule
	r.tree.Each(func(_ *descriptors.Domain, rule *descriptors.Rule) {
		if t := rule.Table; t != nil {
			other, _ := filepath.Abs(t.File)
			named = named || t.File == name || other == path
		}
	})
	if len(paths) > 0 && len(r.Errors) == 0 && !named {
		problems.Add(document.Position{File: name, Line: 1, Column: 1}, "", "no rule of %s names this table", r.Dir)
		r.Errors = problems.Told()
	}
	r.Dir, r.Files, r.Rows = name, append(r.Files, name), new(int)
	if table.Rows != nil {
		*r.Rows = table.Rows.Len
	}
	return r, nil
}

// readPath reads the files of one path, and calls the functions of told.
func (f *problemFlags) readPath(path string, told sources.Folder) ([]yaml.Text, error) {
	if path == "-" {
		content, err := io.ReadAll(os.Stdin)
		return []yaml.Text{{Name: "<stdin>", Content: content}}, err
	}
	return f.read(path, told)
}

// report is the document of `rls check`.
type report struct {
	Dir      string         `json:"dir"` // the paths
	Files    []string       `json:"files"`
	Domains  int            `json:"domains"` // 0 with errors
	Errors   rules.Problems `json:"errors"`
	Warnings []warning      `json:"warnings"`
	Rows     *int           `json:"rows,omitempty"` // of a table

	Overlaid []overlaid `json:"overlaid,omitempty"` // nil with errors

	warned rules.Problems // are Warnings
	tree   *descriptors.Tree
}

// overlaid is a limit that has fields from overlays.
type overlaid struct {
	Rule  string           `json:"rule"`
	Limit string           `json:"limit"`
	File  string           `json:"file"`
	Line  int              `json:"line"`
	From  descriptors.Laid `json:"from"`
}

// warning is a problem whose JSON has its lint also without a name.
type warning struct {
	rules.Problem
	Lint rules.Lint `json:"lint"`
}

// count is how many problems are found, told or not.
func count(found rules.Problems) (n int) {
	for _, p := range found {
		n += max(1, p.More)
	}
	return n
}

// write writes the report in the format of the flags: text, json, or github for annotations of a
// workflow.
func (r *report) write(w io.Writer, f *problemFlags) error {
	var b strings.Builder
	switch f.Format {
	case "json":
		return cli.WriteJSON(w, r)
	case "github":
		b.WriteString(annotations("error", r.Errors) + annotations("warning", r.warned))
	default:
		if f.Verbose {
			for _, file := range r.Files {
				fmt.Fprintf(&b, "opening %s\n", file)
			}
		}
		r.text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) text(b *strings.Builder) {
	for _, o := range r.Overlaid {
		fmt.Fprintf(b, "overlaid: %s:%d: %s: %s has %s\n", o.File, o.Line, o.Rule, o.Limit, o.From)
	}
	for _, w := range r.warned {
		fmt.Fprintf(b, "warning: %v\n", w)
	}
	for _, e := range r.Errors {
		fmt.Fprintln(b, e)
	}
	problems := "no problems"
	switch {
	case len(r.Errors) > 0:
		problems = fmt.Sprintf("errors %d", count(r.Errors))
	case len(r.Warnings) > 0:
		problems = fmt.Sprintf("warnings %d", count(r.warned))
	}
	counted := fmt.Sprintf("files %d, domains %d", len(r.Files), r.Domains)
	if r.Rows != nil {
		counted = fmt.Sprintf("rows %d", *r.Rows)
	}
	fmt.Fprintf(b, "%s: %s, %s\n", r.Dir, counted, problems)
}

// annotations are annotations of a workflow, which a pull request shows at their lines.
func annotations(kind string, found rules.Problems) (text string) {
	for _, p := range found {
		message := strings.TrimPrefix(p.Error(), p.Position.String()+": ")
		text += document.Annotation(kind, p.File, p.Line, p.Column, message)
	}
	return text
}
