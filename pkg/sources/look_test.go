package sources

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// `cp -p` and `rsync --times` write a file in place and set its time; builds that repeat give all files one time.
func TestLookSeesWhatKeepsSizeAndTime(t *testing.T) {
	folder := Folder{Path: t.TempDir()}
	path := filepath.Join(folder.Path, "a.yaml")
	write := func(text string) uint64 {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0))); err != nil {
			t.Fatal(err)
		}
		sum, fresh := folder.look()
		if !fresh {
			t.Error("the file changed a moment ago")
		}
		return sum
	}
	before := write("domain: a\n") // the clock of files has ticks
	testenv.Eventually(t, 5*time.Second, func() bool { return write("domain: b\n") != before }, "another content is seen")
}

// A process looks at its files every lookEvery.
func BenchmarkLook(b *testing.B) {
	folder := Folder{Path: b.TempDir()}
	for i := range 1000 {
		if err := os.WriteFile(filepath.Join(folder.Path, fmt.Sprintf("rule-%04d.yaml", i)), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		folder.look()
	}
}
