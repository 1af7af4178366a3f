// Package check loads rules, reports every problem that they have, and rewrites their files
// where that is safe.
package check

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// Options say which rules are loaded, and how.
type Options struct {
	Paths []string // "-" is the standard input
	// Read reads the files of a path, and calls dangling with each link to nothing.
	Read  func(path string, dangling func(link string)) ([]yaml.Text, error)
	Rules rules.Options
}

// Run loads the files of the paths, each file once. Its errors are usage errors.
func Run(o *Options) (*Report, error) {
	r := &Report{Dir: strings.Join(o.Paths, " "), Files: []string{}}
	var warnings rules.Problems
	seen := map[string]bool{}
	for _, path := range o.Paths {
		read, err := o.read(path, func(link string) { warnings = append(warnings, danglingLink(link)) })
		if err != nil {
			return nil, cli.UsageError("read rules: %w", err)
		}
		for _, file := range read {
			if name := filepath.Clean(file.Name); !seen[name] {
				seen[name] = true
				r.texts = append(r.texts, file)
				r.Files = append(r.Files, file.Name)
			}
		}
	}
	tree, more, err := yaml.Load(r.texts, o.Rules)
	warnings = append(warnings, more...)
	r.Warnings = findings(warnings)
	for i := range warnings {
		r.Warnings[i].Lint = &warnings[i].Lint
	}
	var problems rules.Problems
	errors.As(err, &problems)
	r.Errors = findings(problems)
	if err == nil {
		r.Domains = len(tree.Domains())
	}
	return r, nil
}

// read reads the files of one path.
func (o *Options) read(path string, dangling func(string)) ([]yaml.Text, error) {
	if path == "-" {
		content, err := io.ReadAll(os.Stdin)
		return []yaml.Text{{Name: "<stdin>", Content: content}}, err
	}
	return o.Read(path, dangling)
}

func danglingLink(path string) rules.Problem {
	target, _ := os.Readlink(path)
	return rules.Problem{
		Position: descriptors.Position{File: path, Line: 1, Column: 1},
		Message:  fmt.Sprintf("is a link to %q, which does not exist: no rules are read from it; remove the link, or restore the file", target),
		Lint:     rules.DanglingLink,
	}
}

// Fix loads the files as Run does, rewrites them without the keys of which the lint
// empty-value warns, and reports on the new files.
func Fix(o *Options) (*Report, error) {
	r, err := Run(o)
	if err != nil {
		return nil, err
	}
	var fixed rules.Problems
	for _, file := range r.texts {
		var keys []descriptors.Position
		for _, w := range r.Warnings {
			if w.File == file.Name && *w.Lint == rules.EmptyValue {
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
			fixed = append(fixed, rules.Problem{Position: key, Message: "removed the key value, which was empty: the rule means the same"})
		}
	}
	if len(fixed) > 0 { // warnings have other lines now
		if r, err = Run(o); err != nil {
			return nil, err
		}
	}
	r.Fixed = findings(fixed)
	return r, nil
}
