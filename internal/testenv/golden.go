package testenv

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files that are made from the code")

// Golden fails the test unless the file at a path has the text that the code says, and tells the first line
// that differs and how to write the file: go test of the package, with -update.
func Golden(t testing.TB, path, want, pkg string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // everybody may read it
			t.Fatal(err)
		}
	}
	got := Read(t, path)
	if got == want {
		return
	}
	lines, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	n := 0
	for n < len(lines) && n < len(wanted) && lines[n] == wanted[n] {
		n++
	}
	t.Errorf("%s:%d is not what the code says; run go test ./%s -update, and look at it\nhas  %q\nwant %q",
		path, n+1, pkg, lines[n:min(n+1, len(lines))], wanted[n:min(n+1, len(wanted))])
}

// Read is the text of a file, which must exist.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
