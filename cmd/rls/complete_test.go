package main

import (
	"slices"
	"strings"
	"testing"
)

// completed is what the scripts read for the words of a command line.
func completed(t *testing.T, words ...string) string {
	t.Helper()
	text, err := output(t, append([]string{"__complete", "--"}, words...)...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestComplete(t *testing.T) {
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
		for line := range strings.Lines(completed(t, strings.Split(test.line, " ")...)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%q: got %q, want %s", test.line, got, test.want)
		}
	}
	if all := completed(t); !strings.HasPrefix(all, "serve\tServe rate limits") || strings.Count(all, "\n") < 5 {
		t.Errorf("commands: %q", all)
	}
}
