package backendtest

import (
	"errors"
	"maps"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
)

// Notes is the suite for [backends.Notes]. name is a name that s has no notes under.
func Notes(t *testing.T, s backends.Notes, name string) {
	ctx := t.Context()
	version := func() string {
		t.Helper()
		v, err := s.NotesVersion(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	has := func(when string, want map[string]string) {
		t.Helper()
		v, texts, err := s.Notes(ctx, name, backends.NotesBound{Fields: 3, Bytes: 100})
		if err != nil || !maps.Equal(texts, want) || v != version() || (v == "") != (len(want) == 0) {
			t.Fatalf("%s: version %q, %v, %v; want %v", when, v, texts, err, want)
		}
	}
	until := time.UnixMicro(s.Now()).Add(time.Hour)
	change := func(c backends.NotesChange) error {
		c.Most = 3
		before := version()
		was, is, err := s.ChangeNotes(ctx, name, c)
		if changed := version() != before; changed != (err == nil) {
			t.Errorf("%+v: %v, and the version changed: %v", c, err, changed)
		}
		if err == nil && (was != before || is != version()) {
			t.Errorf("%+v: versions %q and %q, want %q and %q", c, was, is, before, version())
		}
		return err
	}
	has("at first", map[string]string{})
	for _, c := range []backends.NotesChange{
		{Set: "a 1", Text: "x", Until: until},
		{Set: "b 1", Text: "y", Until: until.Add(-time.Minute)},
		{Set: "a 1", Text: "z", Until: until},
	} {
		if err := change(c); err != nil {
			t.Fatal(err)
		}
	}
	has("after changes", map[string]string{"a 1": "z", "b 1": "y"})
	if err := change(backends.NotesChange{Set: "c 1", Text: "\x00 \xff", Until: until}); err != nil {
		t.Fatal(err)
	}
	err := change(backends.NotesChange{Set: "d 1", Text: "one too many", Until: until})
	if !errors.Is(err, backends.ErrNotesFull) {
		t.Errorf("one too many: %v", err)
	}
	err = change(backends.NotesChange{
		Set: "d 1", Text: "in the place of another", Until: until,
		Remove: map[string]string{"a 1": "z", "b 1": "another", "none": ""},
	})
	if err != nil {
		t.Error(err)
	}
	has("after a removal", map[string]string{"b 1": "y", "c 1": "\x00 \xff", "d 1": "in the place of another"})
	for _, most := range []backends.NotesBound{{Fields: 2, Bytes: 100}, {Fields: 3, Bytes: 20}} {
		if _, texts, err := s.Notes(ctx, name, most); err == nil {
			t.Errorf("%+v: got %v", most, texts)
		}
	}
	all := map[string]string{"b 1": "y", "c 1": "\x00 \xff", "d 1": "in the place of another"}
	if err := change(backends.NotesChange{Remove: all}); err != nil {
		t.Fatal(err)
	}
	has("without fields", map[string]string{})
}
