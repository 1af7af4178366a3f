package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

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
