// Package golden compares files of the repository with what the code says they have. Run with the
// flag -update, the tests write the files first.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that are made from the code")

// Compare fails the test unless the file at a path has the text that it is wanted to have, and tells how
// to write it: go test of the package, with -update. A file that cannot be read or written ends the test.
func Compare(t *testing.T, path, want, pkg string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, Read(t, path)); diff != "" {
		t.Errorf("%s is not what the code says; run go test ./%s -update\n%s", path, pkg, diff)
	}
}

// Read is the text of a file, which must exist.
func Read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
