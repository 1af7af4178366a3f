package memory_test

import (
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/test/backendtest"
)

func TestNotes(t *testing.T) {
	clock := new(atomic.Int64)
	clock.Store(1_800_000_000_000_000)
	s, err := memory.New(memory.Options{MaxKeys: 10, Now: clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	backendtest.Notes(t, s, "notes")
	until := time.UnixMicro(s.Now()).Add(time.Minute)
	if _, _, err := s.ChangeNotes(t.Context(), "notes", backends.NotesChange{Set: "a", Text: "b", Most: 1, Until: until}); err != nil {
		t.Fatal(err)
	}
	clock.Add(time.Minute.Microseconds())
	if v, err := s.NotesVersion(t.Context(), "notes"); v != "" || err != nil {
		t.Errorf("after their end notes have the version %q, %v", v, err)
	}
}
