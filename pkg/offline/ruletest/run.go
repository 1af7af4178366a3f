package ruletest

import (
	"fmt"
	"regexp"
	"time"

	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/offline"
	"example.org/rls/pkg/service"
)

// Report is the outcome of tests. Its JSON is that of `rls test`.
type Report struct {
	Passed   int       `json:"passed"`
	Failed   int       `json:"failed"`
	Tests    []Result  `json:"tests"`
	Coverage *Coverage `json:"coverage,omitempty"` // nil unless it was asked for
}

// Result is the outcome of one test.
type Result struct {
	File     string    `json:"file"`
	Line     int       `json:"line"`
	Name     string    `json:"name"`
	Passed   bool      `json:"passed"`
	Failures []Failure `json:"failures"`
}

// Failure is an expectation that did not hold.
type Failure struct {
	File       string           `json:"file"`
	Line       int              `json:"line"` // inside of the step
	Step       int              `json:"step"` // from 1
	At         explain.Duration `json:"at"`   // since the start of the test
	Repetition int              `json:"repetition"`
	Field      string           `json:"field"`
	Want       any              `json:"want"`
	Got        any              `json:"got"`
	// Explain tells how the request came to its limits, with the states of their
	// cells after it. It is nil if the service refuses the request.
	Explain *explain.Document `json:"explain,omitempty"`

	repeat int
}

// refused is the field of the failure of a request that the service refuses.
const refused = "request"

// message is the failure on one line, without its place.
func (f *Failure) message() string {
	got := shown(f.Got)
	if f.Field == refused {
		got = fmt.Sprint("the error: ", f.Got)
	}
	s := fmt.Sprintf("step %d (at %s): %s: want %s, got %s", f.Step, short(time.Duration(f.At)), f.Field, shown(f.Want), got)
	if f.repeat > 1 {
		s += fmt.Sprintf(" (repetition %d of %d)", f.Repetition, f.repeat)
	}
	return s
}

// Options chooses among the tests of files.
type Options struct {
	Only     *regexp.Regexp // of names; nil chooses all tests
	Coverage bool           // list the rules that no test matched
}

// maxKeys bounds the cells of a test.
const maxKeys = 1 << 20

// Run runs the tests of files that are loaded.
func Run(files []*File, o Options) *Report {
	report := &Report{Tests: []Result{}}
	covered := coverage{}
	for _, f := range files {
		engine := offline.New(f.tree, maxKeys)
		for _, r := range engine.Rules() {
			for _, part := range r.Parts() {
				covered[nameOf(part)] = covered[nameOf(part)] // false unless a test has matched it
			}
		}
		for i := range f.tests {
			t := &f.tests[i]
			if o.Only != nil && !o.Only.MatchString(t.text) {
				continue
			}
			engine.Reset()
			r := run{engine: engine, covered: covered, result: Result{File: f.Name, Line: t.at.Line, Name: t.text, Failures: []Failure{}}}
			r.test(t)
			if r.result.Passed = len(r.result.Failures) == 0; r.result.Passed {
				report.Passed++
			} else {
				report.Failed++
			}
			report.Tests = append(report.Tests, r.result)
		}
	}
	if o.Coverage {
		report.Coverage = covered.report()
	}
	return report
}

// run is one test while it runs.
type run struct {
	engine  *offline.Engine
	covered coverage
	result  Result

	step    *step
	failure Failure // the part that failures of the step have in common
}

// test runs every step, also after one that failed.
func (r *run) test(t *test) {
	for i := range t.steps {
		r.step = &t.steps[i]
		r.failure = Failure{File: r.result.File, Step: i + 1, At: explain.Duration(r.step.at), repeat: r.step.repeat}
		r.engine.At(t.start.Add(r.step.at))
		r.repeat()
	}
}

// repeat sends the request of the step as often as the step says. Of the repetitions
// whose code is wrong it reports the first.
func (r *run) repeat() {
	s := r.step
	failed := false
	for n := 1; n <= s.repeat; n++ {
		r.failure.Repetition, r.failure.Explain = n, nil
		answer, err := r.engine.Decide(&s.request)
		if err != nil {
			r.fail(refused, s.line, "a decision", err.Error())
			return
		}
		r.covered.match(answer.Statuses)
		got := headline(s.request.Domain, answer)
		last := n == s.repeat
		for i := range s.expect.wanted {
			w := &s.expect.wanted[i]
			isCode := w.field == "code"
			if isCode && !failed {
				failed = !r.hold(w, w.field, &got)
			} else if last && !isCode {
				r.hold(w, w.field, &got)
			}
		}
		if last && s.expect.statuses != nil {
			r.statuses(answer)
		}
	}
}

// statuses compares the statuses of an answer with the wanted ones.
func (r *run) statuses(answer *service.Outcome) {
	expect := &r.step.expect
	if want, got := len(expect.statuses), len(answer.Statuses); want != got {
		r.fail("statuses", expect.line, want, got)
		return
	}
	for i := range expect.statuses {
		facts := factsOf(r.step.request.Domain, &answer.Statuses[i])
		for j := range expect.statuses[i].wanted {
			w := &expect.statuses[i].wanted[j]
			r.hold(w, fmt.Sprintf("statuses[%d].%s", i, w.field), &facts)
		}
	}
}

// hold reports whether the facts are as wanted, and adds a failure if not.
func (r *run) hold(w *wanted, field string, f *facts) bool {
	got, holds := w.check(f)
	if !holds {
		r.fail(field, w.line, w.want, got)
	}
	return holds
}

// fail adds a failure. A line before the step, of an expectation that the step takes
// from elsewhere by an alias, becomes that of the step.
func (r *run) fail(field string, line int, want, got any) {
	if r.failure.Explain == nil {
		if doc, err := r.engine.Explain(&r.step.request); err == nil {
			r.failure.Explain = &doc
		}
	}
	f := r.failure
	f.Field, f.Line, f.Want, f.Got = field, max(line, r.step.line), want, got
	r.result.Failures = append(r.result.Failures, f)
}
