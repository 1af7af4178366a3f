package ruletest

import (
	"encoding/xml"
	"fmt"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/internal/terminal"
)

// Text is the report for a person: a line for each test that passed, the failures of the
// others with their explanations, and the sums.
func (r *Report) Text() string {
	var b strings.Builder
	for i := range r.Tests {
		t := &r.Tests[i]
		if t.Passed {
			fmt.Fprintf(&b, "ok %s: %s\n", t.File, terminal.Visible(t.Name))
			continue
		}
		t.each(func(line, explanation string) {
			b.WriteString("FAIL " + line + "\n")
			for line := range strings.Lines(explanation) {
				b.WriteString(strings.TrimRight("    "+line, " \n") + "\n")
			}
		})
	}
	b.WriteString(r.Coverage.Text())
	fmt.Fprintf(&b, "%d passed, %d failed\n", r.Passed, r.Failed)
	return b.String()
}

// each calls do for each failure, with its place and message, and with its
// explanation unless that of the next failure is the same.
func (t *Result) each(do func(line, explanation string)) {
	for i := range t.Failures {
		f := &t.Failures[i]
		var explanation string
		if i+1 == len(t.Failures) || t.Failures[i+1].Explain != f.Explain {
			explanation = f.explanation()
		}
		do(fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, terminal.Visible(t.Name), f.message()), explanation)
	}
}

// explanation is Explain as text, "" without one.
func (f *Failure) explanation() string {
	if f.Explain == nil {
		return ""
	}
	var b strings.Builder
	_ = f.Explain.Text(&b) // a Builder does not fail
	return b.String()
}

// GitHub has an annotation of a workflow for each failure, which a pull request shows at
// the line, and one for each rule that no test matched.
func (r *Report) GitHub() string {
	var b strings.Builder
	for i := range r.Tests {
		for j := range r.Tests[i].Failures {
			f := &r.Tests[i].Failures[j]
			b.WriteString(document.Annotation("error", f.File, f.Line, 0, terminal.Visible(r.Tests[i].Name)+": "+f.message()+"\n"+f.explanation()))
		}
	}
	if r.Coverage != nil {
		for _, m := range r.Coverage.Missing {
			b.WriteString(document.Annotation("notice", m.File, m.Line, 0, "not covered: "+m.Rule))
		}
	}
	return b.String()
}

type suites struct {
	XMLName xml.Name `xml:"testsuites"`
	Suites  []*suite `xml:"testsuite"`
}

type suite struct {
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Name     string    `xml:"name,attr"`
	Class    string    `xml:"classname,attr"`
	File     string    `xml:"file,attr"`
	Line     int       `xml:"line,attr"`
	Failures []failure `xml:"failure"`
}

type failure struct {
	Message string `xml:"message,attr"` // of the first
	Text    string `xml:",chardata"`
}

// JUnit is the report as the XML that CI systems read. It has no coverage.
func (r *Report) JUnit() string {
	var all suites
	for i := range r.Tests {
		t := &r.Tests[i]
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != t.File {
			all.Suites = append(all.Suites, &suite{Name: t.File})
		}
		s := all.Suites[len(all.Suites)-1]
		s.Tests++
		c := testCase{Name: t.Name, Class: t.File, File: t.File, Line: t.Line}
		if !t.Passed {
			s.Failures++
			var text strings.Builder
			t.each(func(line, explanation string) { text.WriteString(line + "\n" + explanation) })
			c.Failures = []failure{{Message: t.Failures[0].message(), Text: text.String()}}
		}
		s.Cases = append(s.Cases, c)
	}
	text, _ := xml.MarshalIndent(all, "", "  ") // does not fail for these types
	return xml.Header + string(text) + "\n"
}
