package main

import (
	"slices"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	app := newParser(t.Context(), "rls", "").Model
	for _, test := range []struct {
		line string // its last word, behind the last space, is completed
		want string
	}{
		{"cl", "client"},
		{"vers", "version"},
		{"__", ""},
		{"help vers", "version"},
		{"completion ", "bash zsh fish"},
		{"completion f", "fish"},
		{"nonsense ", ""},

		{"client --form", "--format"},
		{"client --format ", "text json"},
		{"client --format j", "json"},
		{"client --format=", "--format=text --format=json"},
		{"client --format json --form", ""},
		{"client --n 5 --conc", "--concurrency"},
		{"client --descriptor a=b --desc", "--descriptor"}, // may be repeated
		{"client --watch --time", "--timeout"},             // watch has no value
		{"client --tls=f", "--tls=false"},
		{"client --nonsense=", ""},
		{"client --domain ", ""},
		{"client --timeout ", ""},
		{"client --addr ", ""},
		{"client --ca ", ":files"},
		{"client --ca=a", ":files"},
		{"client -- --form", ""},

		{"check ", ":files"},
		{"check one.yaml two", ":files"},
		{"check --format g", "github"},

		{"serve --backend-type m", "memory memcache"},
		{"--backend-type=r", "--backend-type=redis"}, // of the default command
		{"serve --redis-tls-cacert ", ":files"},
		{"serve --help=redis", ""},
		{"serve --help=backend-r", "--help=backend-redis --help=backend-redis-for-per-second-limits"},
	} {
		var got []string
		for _, candidate := range complete(app, strings.Split(test.line, " ")) {
			got = append(got, candidate.word)
		}
		if !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%q: got %q, want %s", test.line, got, test.want)
		}
	}
	if all := complete(app, nil); len(all) < 5 || all[0].word != "serve" || all[0].about == "" {
		t.Errorf("commands: %q", all)
	}
}
