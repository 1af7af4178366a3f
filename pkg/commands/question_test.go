package commands

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseQuestions(t *testing.T) {
	const text = `{"domain": "a", "descriptors": [{"entries": [{"key": "user", "value": "ann"}, {"key": "path"}]}]}

{"domain": "b", "hits_addend": 2}{"domain": "c"}
`
	got, err := parseQuestions("file", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, q := range got {
		seen = append(seen, fmt.Sprintf("%s %d %v", q.Request.GetDomain(), q.Request.GetHitsAddend(), q.Names))
	}
	if want := "a 0 [user=ann,path] b 2 [] c 0 []"; strings.Join(seen, " ") != want {
		t.Errorf("got %q, want %s", seen, want)
	}
}

func TestWrongQuestions(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "file has no request",
		"\n":                 "file has no request",
		"{\"domain\":\n1}":   "file:2: invalid value for string field domain: 1",
		"\n\n{\"domian\":1}": `file:3: unknown field "domian"`,
		"{}\n{}}":            "file:2: invalid character '}' looking for beginning of value",
		"{}\n\n{\n":          "file:3: unexpected EOF",
		"[{}]":               "file:1: a list: want the requests one after the other, without [ and ]",
	} {
		if _, err := parseQuestions("file", []byte(text)); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "\u00a0", " "), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]string{
		"":               "<nil>",
		"100/minute":     "100 MINUTE 0",
		"0/second":       "0 SECOND 0",
		"5/2*HOUR":       "5 HOUR 2",
		"5":              "want N/UNIT",
		"5/":             "want N/UNIT",
		"-1/minute":      "want N/UNIT",
		"4294967296/day": "want N/UNIT",
		"5/0*minute":     "want N/UNIT",
		"5/unknown":      "want N/UNIT",
		"5/minutes":      "want N/UNIT",
	} {
		limit, err := parseLimit(text)
		got := fmt.Sprint(err)
		if limit != nil {
			got = fmt.Sprint(limit.GetRequestsPerUnit(), limit.GetUnit(), limit.GetUnitMultiplier().GetValue())
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
