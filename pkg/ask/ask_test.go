package ask_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"example.org/rls/internal/fields"
	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
)

// show is a as JSON, without the fields that are absent.
func show(a *service.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s hits %d", a.Domain, a.Hits)
	for _, d := range a.Descriptors {
		b.WriteString(" |")
		for _, e := range d.Entries {
			fmt.Fprintf(&b, " %s=%q", e.Key, e.Value)
		}
		if d.Hits != nil {
			fmt.Fprintf(&b, " hits %d", *d.Hits)
		}
		if d.Refund {
			b.WriteString(" refund")
		}
		if d.Limit != nil {
			fmt.Fprintf(&b, " limit %d/%d*%s", d.Limit.RequestsPerUnit, d.Limit.Multiplier, d.Limit.Unit)
		}
	}
	return b.String()
}

// readYAML reads a request from YAML, and returns its problems or what it is.
func readYAML(text string) string {
	file := yaml.Read(yaml.Text{Name: "f", Content: []byte(text)})
	if len(file.Problems) > 0 {
		return file.Problems[0].Error()
	}
	var r fields.Reader
	a := ask.Read(&r, file.Root)
	if len(r.Problems) > 0 {
		return r.Problems.Error()
	}
	return show(&a)
}

func TestRequestsAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		`{"domain":"s","hitsAddend":2,"descriptors":[{"entries":[{"key":"a","value":"b/"}],"hitsAddend":"5","limit":{"requestsPerUnit":1,"unit":"DAY"}}]}`: `s hits 2 | a="b/" hits 5 limit 1/1*DAY`,
		`{domain: shop, descriptors: [{plan: free, user: ann}]}`:                                                        `shop hits 0 | plan="free" user="ann"`,
		`{domain: shop, descriptors: [{user: 010, on: yes, x: 1.50, y: }]}`:                                             `shop hits 0 | user="010" on="yes" x="1.50" y=""`,
		`{domain: shop, descriptors: [{b: 1, a: 2}, {}], hits: 7}`:                                                      `shop hits 7 | b="1" a="2" |`,
		`{domain: shop, descriptors: [{a: 1, a: 2}]}`:                                                                   `shop hits 0 | a="1" a="2"`,
		`{domain: shop, descriptors: [{a: 1}], hits: 0}`:                                                                `shop hits 0 | a="1" hits 0`,
		`{domain: shop, descriptors: [{a: 1}], hits_addend: 0}`:                                                         `shop hits 0 | a="1"`,
		`{domain: shop, descriptors: [{a: 1}], hitsAddend: 4}`:                                                          `shop hits 4 | a="1"`,
		`{domain: shop, descriptors: [{a: 1}, {a: 2}], hits: -3}`:                                                       `shop hits 0 | a="1" hits 3 refund | a="2" hits 3 refund`,
		`{domain: s, descriptors: [{entries: [{key: a, value: 1}, {key: b}]}]}`:                                         `s hits 0 | a="1" b=""`,
		`{domain: s, descriptors: [{entries: deep}]}`:                                                                   `s hits 0 | entries="deep"`,
		`{domain: s, descriptors: [{entries: [{key: a}], hits_addend: 5, is_negative_hits: true}], hits: -1}`:           `s hits 0 | a="" hits 5 refund`,
		`{domain: s, descriptors: [{entries: [{key: a}], hitsAddend: "0", isNegativeHits: no}], hits: 2}`:               `s hits 2 | a="" hits 0`,
		`{domain: s, descriptors: [{entries: [{key: a}], limit: {requests_per_unit: 5, unit: minute}}]}`:                `s hits 0 | a="" limit 5/1*MINUTE`,
		`{domain: s, descriptors: [{entries: [{key: a}], limit: {requestsPerUnit: 5, unit: HOUR, unitMultiplier: 2}}]}`: `s hits 0 | a="" limit 5/2*HOUR`,
		`{domain: s, descriptors: [{entries: [{key: a}], limit: {unit: 7}}]}`:                                           `s hits 0 | a="" limit 0/1*WEEK`,
		"descriptors: [{<<: &b {plan: free, user: ann}, user: bob, x: 1}]\ndomain: {nested: 1}":                         `f:2:9: domain: must be a string, not a mapping`,
		"{domain: s, descriptors: [&b {plan: free, user: ann}, {x: 0, <<: *b, user: bob}]}":                             `s hits 0 | plan="free" user="ann" | x="0" plan="free" user="bob"`,
		`[]`:                               `f:1:1: must be a mapping with domain, descriptors, hits, hits_addend, not a list`,
		`{domain: s}`:                      `f:1:1: descriptors: is missing; the descriptors: {plan: free, user: ann}, or the long form with entries`,
		`{domain: "", descriptors: [x]}`:   "f:1:10: domain: must not be empty\nf:1:28: descriptors[0]: must be a mapping of keys to values, or a mapping with a list of entries, not a string",
		`{domain: s, descriptors: []}`:     `f:1:26: descriptors: must not be empty; it is a list of descriptors`,
		`{domain: s, descriptors: {a: 1}}`: `f:1:26: descriptors: must be a list of descriptors, not a mapping`,
		`{domain: s, desciptors: [{a: 1}], descriptors: [{a: 1}]}`:    `f:1:13: desciptors: unknown key; did you mean "descriptors"?`,
		`{domain: s, domain: t, descriptors: [{a: 1}]}`:               `f:1:13: domain: the key is repeated; write it once`,
		`{domain: s, descriptors: [{a: [1]}]}`:                        `f:1:31: descriptors[0].a: must be a string, not a list; a descriptor is {plan: free, user: ann}, or {entries: [{key: plan, value: free}]}`,
		`{domain: s, descriptors: [{"": 1}]}`:                         `f:1:28: descriptors[0]: a key must not be empty`,
		`{domain: s, descriptors: [{a: 1}], hits: 1, hits_addend: 1}`: `f:1:1: hits: excludes hits_addend; write one of them`,
		`{domain: s, descriptors: [{a: 1}], hits: many}`:              `f:1:42: hits: must be a whole number from -4294967295 to 4294967295, not "many"`,
		`{domain: s, descriptors: [{a: 1}], hits: 1.5}`:               `f:1:42: hits: must be a whole number from -4294967295 to 4294967295, not 1.5`,
		`{domain: s, descriptors: [{entries: [{key: a, vlaue: 1}], limit: {unit: mintue}, is_negative_hits: 1}]}`: "f:1:47: descriptors[0].entries[0].vlaue: unknown key; did you mean \"value\"?\n" +
			"f:1:73: descriptors[0].limit.unit: unknown unit \"mintue\"; did you mean \"minute\"?\nf:1:100: descriptors[0].is_negative_hits: must be true or false, not 1",
	} {
		if got := readYAML(text); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

func TestParseDescriptor(t *testing.T) {
	for text, want := range map[string]string{
		"user=a":                                `user:"a"`,
		"user=a,path=/x=y":                      `user:"a" path:"/x=y"`,
		"user":                                  `user:""`,
		`{"b": "1,2", "a": "{\"x\"}", "b": ""}`: `b:"1,2" a:"{\"x\"}" b:""`,
		`[{"key": "a", "value": "b", "raw": "YW5u/w==", "raw_key": "/w=="}]`: `\xff:"ann\xff"`,
		` [{"key": "a", "value": "1,2"}, {"value": "v", "key": "b"}] `:       `a:"1,2" b:"v"`,
	} {
		d, err := ask.ParseDescriptor(text)
		var got []string
		for _, entry := range d {
			got = append(got, strings.ReplaceAll(entry.Key, "\xff", `\xff`)+":"+strconv.Quote(entry.Value))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                           "a key is empty",
		"=a":                         "a key is empty",
		"user=a,":                    "a key is empty",
		"{}":                         "no entry",
		"[]":                         "no entry",
		`{"user": 1}`:                `value of "user"`,
		`{"user": "a"`:               "EOF",
		`{"user": "a"} x`:            "something follows the JSON value",
		`[{"name": "user"}]`:         `unknown field "name"`,
		`[{"value": "a"}]`:           "a key is empty",
		`[{"key": "a", "raw": "b"}]`: "bytes in base64",
		`[{"key": "user"}] [`:        "something follows the JSON value",
		`{"user": "a", "": "b"}`:     "a key is empty",
		`[{"key": "user",}]`:         "invalid character",
	} {
		_, err := ask.ParseDescriptor(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "want KEY=VALUE") {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
