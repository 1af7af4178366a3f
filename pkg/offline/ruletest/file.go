// Package ruletest runs tests of rules: files that say which requests come when,
// and which answers they must get. Time is simulated, and no store is needed.
//
// [Open] reads test files and loads the rules that they name, and [Run] decides their requests.
// [Report] has a method for each format.
package ruletest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/sources"
)

// File is a test file.
type File struct {
	Name  string
	rules []name // of files and folders
	tests []test
	tree  *descriptors.Tree // set by Load
}

// name is a name as written.
type name struct {
	text string
	at   document.Position
}

type test struct {
	name  // at the test, if it has no name
	start time.Time
	steps []step
}

type step struct {
	at      time.Duration     // since start
	atPos   document.Position // without a line if at is not written
	line    int
	repeat  int
	request service.Request
	expect  expectation
}

// defaultStart is the time at which a test starts that does not say.
var defaultStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// maxRepeats is the largest number of repetitions of a step.
const maxRepeats = 10_000_000

var fileFields = []fields.Field[*File]{
	{Name: "rules", Required: true, What: "files and folders of rules, relative to this file",
		Type: fields.At(fields.List("files and folders", nameType), func(f *File) *[]name { return &f.rules })},
	{Name: "tests", Required: true, What: "the tests, each of which starts with empty counters",
		Type: fields.At(fields.List("tests", testType), func(f *File) *[]test { return &f.tests })},
}

var nameType = fields.Type[*name]{
	Schema: fields.Name.Schema,
	Set: func(r *fields.Reader, n *name, v *document.Value) {
		n.at = v.At
		n.text, _ = fields.Name.Read(r, v)
	},
}

var testFields = []fields.Field[*test]{
	{Name: "name", Required: true, What: "the behaviour that the test shows, in words",
		Type: fields.Type[*test]{Schema: nameType.Schema, Set: func(r *fields.Reader, t *test, v *document.Value) { nameType.Set(r, &t.name, v) }}},
	{Name: "start", What: "the time of at: 0s; 2000-01-01T00:00:00Z by default",
		Type: fields.Type[*test]{Schema: fields.Time.Schema, Set: func(r *fields.Reader, t *test, v *document.Value) {
			if start, ok := fields.Time.Read(r, v); ok {
				t.start = start
			}
			if t.start.UnixMicro() < 0 {
				r.Problem(v.At, "must not be before 1970-01-01T00:00:00Z, not %s", v.Text)
			}
		}}},
	{Name: "steps", Required: true, What: "the requests, in the order of time",
		Type: fields.At(fields.List("steps", stepType), func(t *test) *[]step { return &t.steps })},
}

var testType = fields.Type[*test]{
	Schema: fields.ObjectSchema(testFields),
	Set: func(r *fields.Reader, t *test, v *document.Value) {
		t.at, t.start = v.At, defaultStart
		fields.Mapping(r, testFields, t, v)
		t.order(r)
	},
}

// order gives steps without at the time of the step before, and reports steps that
// are earlier than the step before.
func (t *test) order(r *fields.Reader) {
	var now time.Duration
	for i := range t.steps {
		s := &t.steps[i]
		if s.at < now && s.atPos.Line > 0 {
			r.ProblemOf("steps["+strconv.Itoa(i)+"].at", s.atPos, "is %s, and the step before is at %s; write the steps in the order of time", short(s.at), short(now))
		}
		s.at = max(now, s.at)
		now = s.at
	}
}

var stepFields = []fields.Field[*step]{
	{Name: "at", What: "the time since start; by default that of the step before, 0s for the first",
		Type: fields.Type[*step]{Schema: fields.Duration.Schema, Set: func(r *fields.Reader, s *step, v *document.Value) {
			if at, ok := fields.Duration.Read(r, v); ok {
				s.at, s.atPos = at, v.At
			}
		}}},
	{Name: "repeat", What: "the number of times that the request comes, 1 by default. code holds for each of them, the other fields for the last",
		Type: fields.At(fields.Integer[int](1, maxRepeats), func(s *step) *int { return &s.repeat })},
	{Name: "request", Required: true, What: "the request: {domain: shop, descriptors: [{plan: free, user: ann}], hits: 1}",
		Type: fields.Type[*step]{Schema: ask.Schema(), Set: func(r *fields.Reader, s *step, v *document.Value) { s.request = ask.Read(r, v) }}},
	{Name: "expect", Required: true, What: "the answer, such as {code: OK, remaining: 9}",
		Type: expectType},
}

var stepType = fields.Type[*step]{
	Schema: fields.ObjectSchema(stepFields),
	Set: func(r *fields.Reader, s *step, v *document.Value) {
		s.repeat, s.line = 1, v.At.Line
		fields.Mapping(r, stepFields, s, v)
	},
}

// Schema is the JSON Schema of test files, without $schema, $id and title.
func Schema() map[string]any { return fields.ObjectSchema(fileFields) }

// Read reads a test file. The problems are in the order of their places; without any
// the file is ready for Load.
func Read(text yaml.Text) (*File, []document.Problem) {
	f := &File{Name: text.Name}
	written := yaml.Read(text)
	if len(written.Problems) > 0 {
		return f, written.Problems
	}
	r := fields.Reader{Problems: written.Warnings} // of text that is ignored, and its tests with it
	root := written.Root
	if root == nil {
		root = &document.Value{Kind: document.Null, At: document.Position{File: text.Name, Line: 1, Column: 1}}
	}
	fields.Mapping(&r, fileFields, f, root)
	names := map[string]document.Position{}
	for i := range f.tests {
		t := &f.tests[i]
		if first, repeated := names[t.text]; repeated && t.text != "" {
			r.ProblemOf("tests["+strconv.Itoa(i)+"].name", t.at, "%q is the name of the test in line %d, too; names must differ", t.text, first.Line)
			continue
		}
		names[t.text] = t.at
	}
	r.Problems.Sort()
	return f, r.Problems
}

// Load loads the rules that the file names. read reads the files of a path. The problems are those
// of the rules, with positions in their own files, and paths that cannot be read.
func (f *File) Load(read func(path string) ([]yaml.Text, error), options rules.Options) []document.Problem {
	var texts []yaml.Text
	var problems []document.Problem
	known := map[string]bool{}
	for i, p := range f.rules {
		path := p.text
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(f.Name), path)
		}
		found, err := read(path)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s has no rules; files whose names end in %s are tests", path, sources.TestFile)
		}
		if err != nil {
			problems = append(problems, document.Problem{Position: p.at, Field: "rules[" + strconv.Itoa(i) + "]", Message: err.Error()})
		}
		for _, text := range found {
			if !known[text.Name] {
				known[text.Name] = true
				texts = append(texts, text)
			}
		}
	}
	tree, _, err := yaml.Load(texts, options)
	if wrong, ok := err.(rules.Problems); ok { //nolint:errorlint // Load promises this type
		problems = append(problems, wrong...)
	}
	f.tree = tree
	return problems
}

// Find returns the test files at the path: the file that it names, or all files of the folder and
// its subfolders whose names end in _test.yaml, without those whose names begin with a dot.
func Find(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	var found []string
	root := path + string(filepath.Separator) // so that a link to a folder is followed
	err = filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != root && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return filepath.SkipDir
			}
		case !entry.IsDir() && strings.HasSuffix(name, sources.TestFile):
			found = append(found, name)
		}
		return nil
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the folder %s has no test files; their names end in %s", path, sources.TestFile)
	}
	return found, err
}

// Open reads the test files of all paths, each once, and the rules that they name, whose files read
// returns. Its error is that of a file, or [rules.Problems] with each problem of all files once.
func Open(paths []string, read func(path string) ([]yaml.Text, error), o rules.Options) (files []*File, err error) {
	var names []string
	for _, path := range paths {
		found, missing := Find(path)
		err = errors.Join(err, missing)
		for _, name := range found {
			if !slices.ContainsFunc(names, func(other string) bool { return filepath.Clean(other) == filepath.Clean(name) }) {
				names = append(names, name)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	var problems rules.Problems
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, wrong := Read(yaml.Text{Name: name, Content: content})
		for _, p := range rules.Problems(append(wrong, file.Load(read, o)...)).Told() {
			if !slices.Contains(problems, p) {
				problems = append(problems, p)
			}
		}
		files = append(files, file)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return files, nil
}
