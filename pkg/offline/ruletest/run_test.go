package ruletest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/offline/ruletest"
	"example.org/rls/pkg/sources"
)

func folder(path string) ([]yaml.Text, error) { return sources.Folder{Path: path}.Read() }

// open reads and loads a test file.
func open(t testing.TB, name, text string) *ruletest.File {
	t.Helper()
	f, problems := ruletest.Read(yaml.Text{Name: name, Content: []byte(text)})
	problems = append(problems, f.Load(folder, rules.Options{})...)
	if len(problems) > 0 {
		t.Fatal(rules.Problems(problems))
	}
	return f
}

// steps runs a test of the rules of the features that has these steps.
func steps(t *testing.T, steps string) *ruletest.Report {
	t.Helper()
	return ruletest.Run([]*ruletest.File{open(t, features, "rules: [features.yaml]\ntests: [{name: one, steps: ["+steps+"]}]")}, ruletest.Options{})
}

func read(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

const features = "testdata/features_test.yaml"

// TestFeatures runs tests of all strategies and modes.
func TestFeatures(t *testing.T) {
	report := ruletest.Run([]*ruletest.File{open(t, features, read(t, features))}, ruletest.Options{Coverage: true})
	if report.Failed > 0 || report.Passed < 15 || report.Coverage.Covered < report.Coverage.Rules {
		t.Error(report.Text())
	}
}

// TestEveryExpectationCanFail changes the expectations of the features one by one.
func TestEveryExpectationCanFail(t *testing.T) {
	text := read(t, features)
	expectation := regexp.MustCompile(`\b(code|rule|name|limit|remaining|reset|retry_after|delay|borrowed|reservation): ("?[\w.]*"?)[,}]`)
	changed := 0
	for _, at := range expectation.FindAllStringSubmatchIndex(text, -1) {
		line := text[strings.LastIndexByte(text[:at[0]], '\n')+1 : at[1]]
		if !strings.Contains(line, "expect:") {
			continue
		}
		field, value := text[at[2]:at[3]], text[at[4]:at[5]]
		other := map[string]string{"rule": "other", "name": "other", "limit": "7", "remaining": "77", "code": "OVER_LIMIT", "reservation": "unchanged"}[field]
		switch {
		case value == "OVER_LIMIT":
			other = "OK"
		case field == "borrowed":
			other = strconv.FormatBool(value == "false")
		case other == "":
			other = "77ms"
		}
		report := ruletest.Run([]*ruletest.File{open(t, features, text[:at[4]]+other+text[at[5]:])}, ruletest.Options{})
		failed := 0
		for _, r := range report.Tests {
			for _, f := range r.Failures {
				if f.Explain != nil && (f.Field == field || strings.HasSuffix(f.Field, "]."+field)) {
					failed++
				}
			}
		}
		if failed != 1 {
			t.Errorf("%s: with %s instead of %s %d expectations failed", strings.TrimSpace(line), other, value, failed)
		}
		changed++
	}
	if changed < 80 {
		t.Errorf("%d expectations were changed", changed)
	}
}

// TestShippedTestsPass: the tests in config/ pass and cover the rules that they name.
func TestShippedTestsPass(t *testing.T) {
	names, err := ruletest.Find("../../../config")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		report := ruletest.Run([]*ruletest.File{open(t, name, read(t, name))}, ruletest.Options{Coverage: true})
		if report.Failed > 0 || report.Passed == 0 || len(report.Coverage.Missing) > 0 {
			t.Errorf("%s: %+v", name, report)
		}
	}
}

// TestBounds: a bound holds for its own value.
func TestBounds(t *testing.T) {
	for expect, holds := range map[string]bool{
		"{remaining: {at_least: 99}}": true, "{remaining: {at_least: 100}}": false,
		"{remaining: {at_most: 99}}": true, "{remaining: {at_most: 98}}": false,
		"{reset: {at_least: 1m, at_most: 60s}}": true, "{reset: {at_least: 60001ms}}": false, "{reset: {at_most: 59999ms}}": false,
	} {
		report := steps(t, "{request: {domain: features, descriptors: [{fixed: x}]}, expect: "+expect+"}")
		if (report.Failed == 0) != holds {
			t.Errorf("%s: %+v", expect, report.Tests)
		}
	}
}

// TestHeaders: the headers of thresholds are expected all together, by names in any case.
func TestHeaders(t *testing.T) {
	for expect, want := range map[string]string{
		"{headers: {X-Warning: 50, x-both: 'a, b'}, response_headers: {}, delay: 300ms}": "",
		"{headers: {x-both: 'a, b'}}":            "headers: want map[x-both:a, b], got map[x-both:a, b x-warning:50]",
		"{headers: {}}":                          "headers: want map[], got map[x-both:a, b x-warning:50]",
		"{response_headers: {x-both: a}}":        "response_headers: want map[x-both:a], got map[]",
		"{statuses: [{delay: 0s}, {delay: 0s}]}": "",
	} {
		report := steps(t, "{request: {domain: features, descriptors: [{warned: x}, {marked: x}]}, expect: "+expect+"}")
		if got := report.Text(); (report.Failed == 0) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: want %q in\n%s", expect, want, got)
		}
	}
}

// TestMetadata: what dynamic metadata say of thresholds, pools and reservations can be expected.
func TestMetadata(t *testing.T) {
	for ask, answers := range map[string]map[string]string{
		"[{marked: x}, {warned: x}]": {
			"{thresholds: [{rule: features.marked, at: 50%, captcha: {level: 2}}, {rule: features.warned, at: 50%}]}": "",
			"{thresholds: [{at: 50%, rule: features.marked}, {rule: features.warned, at: 50%}]}":                      "thresholds: want [map[at:50% rule:features.marked] map[at:50% rule:features.warned]], got [map[at:50% captcha:map[level:2] rule:features.marked] map[at:50% rule:features.warned]]",
			"{thresholds: []}": "thresholds: want [], got [map[",
		},
		"[{poor: x}, {first: x}]": {
			"{thresholds: [], borrowed: true, reservation: '', statuses: [{borrowed: true}, {borrowed: false}]}": "",
			"{borrowed: false}":                        "borrowed: want false, got true",
			"{statuses: [{}, {borrowed: true}]}":       "statuses[1].borrowed: want true, got false",
			"{statuses: [{reservation: settled}, {}]}": `statuses[0].reservation: want settled, got ""`,
		},
		"[{first: x}, {id: x}]": {
			"{reservation: held, borrowed: false, statuses: [{reservation: ''}, {reservation: held}]}": "",
			"{reservation: settled}": "reservation: want settled, got held",
		},
	} {
		for expect, want := range answers {
			report := steps(t, "{request: {domain: features, descriptors: "+ask+"}, expect: "+expect+"}")
			if got := report.Text(); (report.Failed == 0) != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s: want %q in\n%s", expect, want, got)
			}
		}
	}
}

// TestTheFirstWrongRepetitionIsReported, and the repetitions after it are charged.
func TestTheFirstWrongRepetitionIsReported(t *testing.T) {
	report := steps(t, `
		{repeat: 15, request: {domain: features, descriptors: [{log: x}, {fixed: x}]},
			expect: {code: OK, remaining: 3}},
		{request: {domain: features, descriptors: [{fixed: x}]}, expect: {remaining: 84}}`)
	var got []string
	for _, f := range report.Tests[0].Failures {
		got = append(got, fmt.Sprintf("%d: step %d, repetition %d: %s want %v, got %v", f.Line, f.Step, f.Repetition, f.Field, f.Want, f.Got))
	}
	if want := "4: step 1, repetition 11: code want OK, got OVER_LIMIT; 4: step 1, repetition 15: remaining want 3, got 0"; strings.Join(got, "; ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), want)
	}
}

// TestARequestThatTheServiceRefuses is a failure that names the reason.
func TestARequestThatTheServiceRefuses(t *testing.T) {
	f := steps(t, `
		{request: {domain: features, descriptors: [{entries: [{key: fixed}], limit: {requests_per_unit: 1, unit: YEAR, unit_multiplier: 4000000000}}]},
			expect: {code: OK}}`).Tests[0].Failures
	if len(f) != 1 || f[0].Field != "request" || f[0].Explain != nil || !strings.HasPrefix(fmt.Sprint(f[0].Got), "descriptors[0].limit: unit_multiplier is 4000000000; want 1 to ") {
		t.Errorf("got %+v", f)
	}
}

// TestAnExpectationBehindAnAliasFailsInItsStep: the line is not that of the anchor.
func TestAnExpectationBehindAnAliasFailsInItsStep(t *testing.T) {
	f := steps(t, `
		{request: &r {domain: features, descriptors: [{even: x}]},
			expect: &ok {code: OK}},
		{request: *r, expect: *ok}`).Tests[0].Failures
	if len(f) != 1 || f[0].Line != 5 {
		t.Errorf("got %+v", f)
	}
}

// TestCoverageOfSeveralFiles: files that load the same rules cover them together.
func TestCoverageOfSeveralFiles(t *testing.T) {
	file := func(name, key string) *ruletest.File {
		return open(t, "testdata/"+name, `
rules: [features.yaml]
tests: [{name: one, steps: [{request: {domain: features, descriptors: [`+key+`]}, expect: {code: OK}}]}]`)
	}
	report := ruletest.Run([]*ruletest.File{file("a", "{fixed: x}"), file("b", "{free: x}"),
		file("c", "{entries: [{key: log}], limit: {requests_per_unit: 1, unit: DAY}}")}, ruletest.Options{Coverage: true})
	c := report.Coverage
	if c.Rules != 19 || c.Covered != 2 || c.Percent != 10.5 || len(c.Missing) != 17 || c.Missing[0] != (ruletest.Uncovered{Rule: "features.first", File: filepath.Join("testdata", "features.yaml"), Line: 5}) {
		t.Errorf("got %+v", c)
	}
	if !c.AtLeast(10) || c.AtLeast(10.6) {
		t.Error("10.5 % is not between 10 % and 10.6 %")
	}
}

// manySteps is a test file with that many steps.
func manySteps(count int) string {
	const perTest = 100
	var b strings.Builder
	b.WriteString("rules: [features.yaml]\ntests:\n")
	for i := range count {
		if i%perTest == 0 {
			fmt.Fprintf(&b, "  - name: test %d\n    steps:\n", i)
		}
		fmt.Fprintf(&b, "      - at: %ds\n        request: {domain: features, descriptors: [{fixed: user%d}]}\n"+
			"        expect: {code: OK, rule: features.fixed, remaining: {at_least: 9}, statuses: [{code: OK, limit: 100}]}\n", i%perTest, i)
	}
	return b.String()
}

// BenchmarkSteps reads and runs a file of 10,000 steps.
func BenchmarkSteps(b *testing.B) {
	const steps = 10_000
	text := manySteps(steps)
	for b.Loop() {
		if report := ruletest.Run([]*ruletest.File{open(b, features, text)}, ruletest.Options{Coverage: true}); report.Passed != steps/100 || report.Failed > 0 {
			b.Fatalf("%d passed, %d failed", report.Passed, report.Failed)
		}
	}
	b.ReportMetric(float64(steps)*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}
