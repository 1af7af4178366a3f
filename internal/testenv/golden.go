package testenv

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the files that are made from the code")

// Golden fails the test unless the file at a path has the text that the code says, and tells how to write it: go
// test of the package, with -update.
func Golden(t testing.TB, path, want, pkg string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // everybody may read it
			t.Fatal(err)
		}
	}
	if Read(t, path) != want {
		t.Errorf("%s is not what the code says: run go test ./%s -update, and look at its diff", path, pkg)
	}
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
