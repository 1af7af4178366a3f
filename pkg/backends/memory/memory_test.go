package memory_test

import (
	"testing"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/test/backendtest"
)

func open(t testing.TB, maxKeys int) *memory.Store {
	t.Helper()
	s, err := memory.New(memory.Options{MaxKeys: maxKeys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backends.Store { return open(t, 1_000_000) })
	s := open(t, 100_000)
	backendtest.RunReads(t, func(*testing.T) backends.Store { return s },
		func(_ *testing.T, key string) string { return s.Stored(key) })
}
