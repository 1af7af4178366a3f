package ruletest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/offline/ruletest"
)

func TestProblems(t *testing.T) {
	step := func(text string) string { return "rules: [r]\ntests:\n  - name: one\n    steps:\n      - " + text }
	const request = "request: {domain: d, descriptors: [{a: b}]}"
	for text, want := range map[string]string{
		"":                      "f:1:1: must be a mapping with rules, tests, not null",
		"[]":                    "f:1:1: must be a mapping with rules, tests, not a list",
		"a: [":                  "f:2:1: not valid YAML: did not find expected node content",
		"rules: [r]":            "f:1:1: tests: is missing; the tests, each of which starts with empty counters",
		"rules: r\ntests: []":   "f:1:8: rules: must be a list of files and folders, not a string\nf:2:8: tests: must not be empty; it is a list of tests",
		"rules: ['']\ntests: x": "f:1:9: rules[0]: must not be empty\nf:2:8: tests: must be a list of tests, not a string",
		"rules: [r]\ntests: [{name: a, steps: []}]":                                                                   "f:2:26: tests[0].steps: must not be empty; it is a list of steps",
		"rules: [r]\ntests: [{name: a, start: noon, steps: [{" + request + ", expect: {code: OK}}]}]":                 `f:2:26: tests[0].start: must be a time such as 2026-03-29T00:59:30Z, not "noon"`,
		"rules: [r]\ntests: [{name: a, start: 1969-12-31T23:59:59Z, steps: [{" + request + ", expect: {code: OK}}]}]": "f:2:26: tests[0].start: must not be before 1970-01-01T00:00:00Z, not 1969-12-31T23:59:59Z",
		step(request):                                                            "f:5:9: tests[0].steps[0].expect: is missing; the answer, such as {code: OK, remaining: 9}",
		step("expect: {code: OK}"):                                               "f:5:9: tests[0].steps[0].request: is missing; the request: {domain: shop, descriptors: [{plan: free, user: ann}], hits: 1}",
		step(request + "\n        expect: OK"):                                   "f:6:17: tests[0].steps[0].expect: must be a mapping with code, rule, name, limit, remaining, reset, retry_after, delay, borrowed, reservation, headers, response_headers, thresholds, statuses, not a string",
		step(request + "\n        expect: {}"):                                   "f:6:17: tests[0].steps[0].expect: must have at least one field, such as code: OK",
		step(request + "\n        expect: {code: over_limit}"):                   `f:6:24: tests[0].steps[0].expect.code: unknown value "over_limit"; did you mean "OVER_LIMIT"?`,
		step(request + "\n        expect: {remaining: -1}"):                      "f:6:29: tests[0].steps[0].expect.remaining: must be a whole number from 0 to 4294967295, not -1",
		step(request + "\n        expect: {remaining: {at_lest: 1}}"):            `f:6:30: tests[0].steps[0].expect.remaining.at_lest: unknown key; did you mean "at_least"?`,
		step(request + "\n        expect: {remaining: {}}"):                      "f:6:29: tests[0].steps[0].expect.remaining: must have at_least or at_most",
		step(request + "\n        expect: {reset: {at_least: 2s, at_most: 1s}}"): "f:6:25: tests[0].steps[0].expect.reset: at_least is greater than at_most, so no value holds",
		step(request + "\n        expect: {reset: 5}"):                           "f:6:25: tests[0].steps[0].expect.reset: must be a duration with a unit, such as 100ms, 29s or 1m30s, not 5",
		step(request + "\n        expect: {statuses: []}"):                       "f:6:28: tests[0].steps[0].expect.statuses: must not be empty; it is a list of statuses",
		step(request + "\n        expect: {thresholds: [{at: 50%}]}"):            "f:6:30: tests[0].steps[0].expect.thresholds: must be a list of mappings with rule, at and the metadata, such as [{rule: shop.user, at: 80%}]; [] is none",
		step(request + "\n        expect: {reservation: taken}"):                 "f:6:31: tests[0].steps[0].expect.reservation: unknown value \"taken\"; one of held, settled, unchanged",
		step(request + "\n        expect: {statuses: [{statuses: []}]}"):         "f:6:30: tests[0].steps[0].expect.statuses[0].statuses: unknown key; one of code, rule, name, limit, remaining, reset, retry_after, delay, borrowed, reservation",
		step(request + "\n        expect: {code: OK}\n        repeat: 0"):        "f:7:17: tests[0].steps[0].repeat: must be a whole number from 1 to 10000000, not 0",
		step(request + "\n        expect: {code: OK}\n        at: -1s"):          `f:7:13: tests[0].steps[0].at: must be a duration with a unit, such as 100ms, 29s or 1m30s, not "-1s"`,
		step("at: 2s\n        " + request + "\n        expect: {code: OK}\n      - at: 5\n        " + request + "\n        expect: {code: OK}"): `f:8:13: tests[0].steps[1].at: must be a duration with a unit, such as 100ms, 29s or 1m30s, not 5`,
		step(request + "\n        expect: {code: OK}\n---\nrules: [r]"):                                                                         "f:7:1: a second document is ignored; put it in a file of its own",
		step(request + "\n        expect: {code: OK}\n        expect: {code: OK}"):                                                              "f:7:9: tests[0].steps[0].expect: the key is repeated; write it once",
		step(request + "\n        expect: {<<: {code: OK, limit: 1}, code: OK}"):                                                                "f:6:44: tests[0].steps[0].expect.code: the key is repeated; write it once",
		"rules: [r]\ntests: [{name: a, steps: 1}, {name: a, stpes: [1], steps: [1]}]":                                                           "f:2:26: tests[0].steps: must be a list of steps, not an integer\nf:2:37: tests[1].name: \"a\" is the name of the test in line 2, too; names must differ\nf:2:40: tests[1].stpes: unknown key; did you mean \"steps\"?\nf:2:60: tests[1].steps[0]: must be a mapping with at, repeat, request, expect, not an integer",
	} {
		_, problems := ruletest.Read(yaml.Text{Name: "f", Content: []byte(text)})
		if got := rules.Problems(problems).Error(); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// TestAnchorsMakeFilesShort: a merged key gives way to a written one.
func TestAnchorsMakeFilesShort(t *testing.T) {
	report := steps(t, `
		&step {request: {domain: features, descriptors: [{even: x}]}, expect: {code: OK}},
		{<<: *step, expect: {code: OVER_LIMIT}},
		{<<: *step, at: 1s}`)
	if report.Passed != 1 {
		t.Errorf("got %+v", report)
	}
}

func TestRulesThatCannotBeLoaded(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, fstest.MapFS{
		"wrong.yaml":        {Data: []byte("domain: d\ndescriptors: [{key: a, rate_limit: {unit: eon}}]")},
		"empty/x_test.yaml": {},
	}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "f_test.yaml")
	f, _ := ruletest.Read(yaml.Text{Name: name, Content: []byte("rules: [wrong.yaml, empty, wrong.yaml]\ntests: [{name: a, steps: [{request: {domain: d, descriptors: [{a: b}]}, expect: {code: OK}}]}]")})
	problems := rules.Problems(f.Load(folder, rules.Options{})).Error()
	want := name + ":1:21: rules[1]: " + filepath.Join(dir, "empty") + " has no rules; files whose names end in _test.yaml are tests\n" + filepath.Join(dir, "wrong.yaml") + ":2:43: rate_limit.unit: unknown unit"
	if !strings.HasPrefix(problems, want) || strings.Count(problems, "\n") != 1 {
		t.Errorf("got  %s\nwant %s", problems, want)
	}
}

// A hundred problems of a test file are told, and no time is spent to compare the others.
func TestManyProblems(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f_test.yaml")
	if err := os.WriteFile(name, []byte("rules: [r.yaml]\ntests:\n"+strings.Repeat("- {nme: a}\n", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	var problems rules.Problems
	_, err := ruletest.Open([]string{name}, func(string) ([]yaml.Text, error) { return []yaml.Text{{Name: "r.yaml"}}, nil }, rules.Options{})
	if !errors.As(err, &problems) || len(problems) != 102 || problems[100].More != 299_900 {
		t.Errorf("%d problems, the last is %v", len(problems), problems[max(0, len(problems)-2):])
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, fstest.MapFS{
		"b_test.yaml": {}, "a/a_test.yaml": {}, "a/rules.yaml": {}, ".git/c_test.yaml": {}, "..data/d_test.yaml": {}, ".e_test.yaml": {}, "f_test.yml": {},
	}); err != nil {
		t.Fatal(err)
	}
	got, err := ruletest.Find(dir)
	if want := []string{filepath.Join(dir, "a/a_test.yaml"), filepath.Join(dir, "b_test.yaml")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if got, err := ruletest.Find(link); err != nil || !slices.Equal(got, []string{filepath.Join(link, "a/a_test.yaml"), filepath.Join(link, "b_test.yaml")}) {
		t.Errorf("a link to a folder: got %v, %v", got, err)
	}
	if got, err := ruletest.Find(filepath.Join(dir, "a/rules.yaml")); err != nil || len(got) != 1 {
		t.Errorf("a file that is named: got %v, %v", got, err)
	}
}

// TestTheSchemaAgreesWithTheReader about a file that has every key: what one of them refuses,
// the other refuses, too.
func TestTheSchemaAgreesWithTheReader(t *testing.T) {
	text, err := json.Marshal(ruletest.Schema())
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("test.json", document); err != nil {
		t.Fatal(err)
	}
	schema := compiler.MustCompile("test.json")
	const file = `{"rules": ["r"], "tests": [{"name": "n", "start": "2026-03-29T00:59:30Z", "steps": [{"at": "1s", "repeat": 2, "request": {"domain": "d", "hits": 1,
		"descriptors": [{"a": "b"}, {"entries": [{"key": "k", "value": "v"}], "limit": {"requests_per_unit": 3, "unit": "MINUTE"}, "is_negative_hits": true}]},
		"expect": {"code": "OK", "rule": "x", "remaining": 7, "reset": "9s", "delay": {"at_least": "8s", "at_most": "9h"}}},
		{"request": {"domain": "d", "hits_addend": 1, "descriptors": [{"a": "b"}]}, "expect": {"name": "x", "limit": 3}},
		{"request": {"domain": "d", "hitsAddend": 1, "descriptors": [{"a": "b"}]}, "expect": {"retry_after": "1s", "statuses": [{"code": "OK"}]}}]}]}`
	valid := 0
	for _, old := range []string{`"r"`, `"n"`, `"2026-03-29T00:59:30Z"`, `"1s"`, `2`, `"d"`, `1`, `"b"`, `"k"`, `"v"`, `3`, `"MINUTE"`, `true`, `"OK"`, `"x"`, `7`, `"9s"`, `"8s"`} {
		for _, value := range []string{`null`, `""`, `0`, `-1`, `4`, `8`, `1.5`, `"x"`, `true`, `[]`, `{}`, `"OK"`, `"5"`, `".5s"`, `"+1m1s"`, `"1x"`, `"-1s"`, `"day"`, `"Month"`, `"2026-01-01T00:00:00+01:00"`} {
			changed := strings.Replace(file, " "+old, " "+value, 1)
			if changed == file {
				changed = strings.Replace(file, "["+old, "["+value, 1)
			}
			var document any
			if err := json.Unmarshal([]byte(changed), &document); err != nil {
				t.Fatal(err)
			}
			wrong := schema.Validate(document)
			_, problems := ruletest.Read(yaml.Text{Name: "f", Content: []byte(changed)})
			if (wrong == nil) != (len(problems) == 0) {
				t.Errorf("%s in place of %s: the schema says %v, the reader %v", value, old, wrong, problems)
			}
			if wrong == nil && changed != file {
				valid++
			}
		}
	}
	if valid < 50 {
		t.Errorf("only %d files are valid", valid)
	}
}

// FuzzRead: a test file is read with problems at lines of the file, or behind its
// end, or it can run.
func FuzzRead(f *testing.F) {
	f.Add([]byte(read(f, features)))
	for _, text := range []string{
		"rules: [features.yaml]\ntests: [{name: a, steps: [{at: 1s, repeat: 2, request: {domain: features, descriptors: [{log: x}], hits: -1}, expect: {statuses: [{remaining: {at_least: 1}}]}}]}]",
		"rules: [r]\ntests: [{name: a, steps: [{request: &r {domain: d, descriptors: [{entries: [{key: a}], limit: {unit: 1}}]}, expect: {<<: {code: OK}}}, {request: *r, expect: {code: OK}}]}]",
		"", "[", "tests: *a", "- ? {}\n", "rules: {a: &b [*b]}",
	} {
		f.Add([]byte(text))
	}
	rulesText := yaml.Text{Name: "features.yaml", Content: []byte(read(f, "testdata/features.yaml"))}
	f.Fuzz(func(t *testing.T, content []byte) {
		file, problems := ruletest.Read(yaml.Text{Name: "f", Content: content})
		lines := 2 // one, and the one behind the end
		for _, r := range string(content) {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) {
				lines++
			}
		}
		for _, p := range problems {
			if p.File != "f" || p.Line < 1 || p.Line > lines || p.Message == "" {
				t.Fatalf("%q: %+v", content, p)
			}
		}
		if len(problems) > 0 || strings.Contains(string(content), "repeat") {
			return // repetitions can take long
		}
		if wrong := file.Load(func(string) ([]yaml.Text, error) { return []yaml.Text{rulesText}, nil }, rules.Options{}); len(wrong) > 0 {
			t.Fatalf("%q: %v", content, wrong)
		}
		if report := ruletest.Run([]*ruletest.File{file}, ruletest.Options{}); len(report.Tests) == 0 {
			t.Fatalf("%q: no test ran", content)
		}
	})
}
