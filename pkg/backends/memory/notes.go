package memory

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"example.org/rls/pkg/backends"
)

var _ backends.Notes = (*Store)(nil)

// notes are the hashes beside the cells, by name.
type notes struct {
	mu     sync.Mutex
	byName map[string]*hash
}

type hash struct {
	version string
	texts   map[string]string
	until   time.Time
}

// at is the hash of that name, empty if there is none. The caller holds n.mu.
func (n *notes) at(name string, now int64) *hash {
	if h := n.byName[name]; h != nil && len(h.texts) > 0 && h.until.UnixMicro() > now {
		return h
	}
	return &hash{texts: map[string]string{}}
}

// NotesVersion implements backends.Notes.
func (s *Store) NotesVersion(_ context.Context, name string) (string, error) {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	return s.notes.at(name, s.now()).version, s.closedErr()
}

// Notes implements backends.Notes.
func (s *Store) Notes(_ context.Context, name string, most backends.NotesBound) (string, map[string]string, error) {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	h, bytes := s.notes.at(name, s.now()), 0
	for field, text := range h.texts {
		bytes += len(field) + len(text)
	}
	if len(h.texts) > most.Fields || bytes > most.Bytes {
		return "", nil, fmt.Errorf("memory: %s has %d fields and %d bytes: want at most %d and %d",
			name, len(h.texts), bytes, most.Fields, most.Bytes)
	}
	return h.version, maps.Clone(h.texts), s.closedErr()
}

// ChangeNotes implements backends.Notes.
func (s *Store) ChangeNotes(_ context.Context, name string, c backends.NotesChange) (before, after string, err error) {
	if err := s.closedErr(); err != nil {
		return "", "", err
	}
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	h := s.notes.at(name, s.now())
	before = h.version
	texts := maps.Clone(h.texts)
	maps.DeleteFunc(texts, func(field, text string) bool {
		gone, is := c.Remove[field]
		return is && gone == text
	})
	if c.Set != "" {
		if texts[c.Set] = c.Text; len(texts) > c.Most {
			return "", "", backends.ErrNotesFull
		}
	}
	h.texts = texts
	if h.version = backends.NewVersion(); c.Until.After(h.until) {
		h.until = c.Until
	}
	s.notes.byName[name] = h
	if len(h.texts) > 0 {
		after = h.version
	}
	return before, after, nil
}
