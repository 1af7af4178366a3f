package commands

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
		{"nonsense ", ""},

		{"client --form", "--format"},
		{"client --n 5 --conc", "--concurrency"},
		{"--backend-ty", "--backend-type"}, // of the default command
		{"nonsense --backend-ty", "--backend-type"},
		{"client -- --form", ""},

		// The shell completes values, as names of files.
		{"completion ", ""},
		{"client --format ", ""},
		{"client --format=", ""},
		{"client --ca a", ""},
		{"check ", ""},
		{"serve --help=redis", ""},
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
