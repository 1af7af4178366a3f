package ask_test

import (
	"strconv"
	"strings"
	"testing"

	"example.org/rls/pkg/ask"
)

func TestParseDescriptor(t *testing.T) {
	for text, want := range map[string]string{
		"user=a":                                `user:"a"`,
		"user=a,path=/x=y":                      `user:"a" path:"/x=y"`,
		"user":                                  `user:""`,
		`{"b": "1,2", "a": "{\"x\"}", "b": ""}`: `b:"1,2" a:"{\"x\"}" b:""`,
		` [{"key": "a", "value": "1,2"}, {"value": "v", "key": "b"}] `: `a:"1,2" b:"v"`,
	} {
		d, err := ask.ParseDescriptor(text)
		var got []string
		for _, entry := range d {
			got = append(got, entry.Key+":"+strconv.Quote(entry.Value))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                       "a key is empty",
		"=a":                     "a key is empty",
		"user=a,":                "a key is empty",
		"{}":                     "no entry",
		"[]":                     "no entry",
		`{"user": 1}`:            `value of "user"`,
		`{"user": "a"`:           "EOF",
		`{"user": "a"} x`:        "something follows the JSON value",
		`[{"name": "user"}]`:     `unknown field "name"`,
		`[{"value": "a"}]`:       "a key is empty",
		`[{"key": "user"}] [`:    "something follows the JSON value",
		`{"user": "a", "": "b"}`: "a key is empty",
		`[{"key": "user",}]`:     "invalid character",
	} {
		_, err := ask.ParseDescriptor(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "want KEY=VALUE") {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
