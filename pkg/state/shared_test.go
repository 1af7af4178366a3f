package state_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/backends"
	stores "example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/state"
)

// notes is a store that counts what it is asked, and fails.
type notes struct {
	*stores.Store
	calls atomic.Int64
	fail  error
	// before is called before each change; it may be nil.
	before func()
}

func (s *notes) Notes(ctx context.Context, name string, most backends.NotesBound) (string, map[string]string, error) {
	s.calls.Add(1)
	if s.fail != nil {
		return "", nil, s.fail
	}
	return s.Store.Notes(ctx, name, most)
}

func (s *notes) ChangeNotes(ctx context.Context, name string, c backends.NotesChange) (before, after string, err error) {
	if s.before != nil {
		s.before()
	}
	s.calls.Add(1)
	before, after, err = s.Store.ChangeNotes(ctx, name, c)
	return before, after, cmp.Or(s.fail, err)
}

const sharedName = "p|rls:memory:1"

// words are a part: a set of words.
type words struct {
	has      map[string]bool
	recalled string
}

func (w *words) add(text string) { w.has[text] = true }

func (w *words) part() state.SharedPart {
	return state.SharedPart{
		Name:    "words",
		Changes: func() uint64 { return uint64(len(w.has)) },
		Recall:  func(text []byte) { w.recalled += string(text) },
		Merge: func(text []byte, n int) []byte {
			all := maps.Clone(w.has)
			for _, word := range strings.Fields(string(text)) {
				all[word] = true
			}
			sorted := slices.Sorted(maps.Keys(all))
			return []byte(strings.Join(sorted[:min(n, len(sorted))], " "))
		},
	}
}

// remembering is a process with some words, and its log.
func remembering(store *notes, has ...string) (*state.Shared, *words, *bytes.Buffer) {
	w := &words{has: map[string]bool{}}
	for _, word := range has {
		w.add(word)
	}
	var log bytes.Buffer
	return state.NewShared(store, "p|", slog.New(slog.NewTextHandler(&log, nil)), w.part()), w, &log
}

// known is what a new process recalls.
func known(t *testing.T, store *notes) string {
	t.Helper()
	s, w, _ := remembering(store)
	if err := s.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.recalled
}

func newNotes(t *testing.T) *notes {
	t.Helper()
	store, err := stores.New(stores.Options{MaxKeys: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &notes{Store: store}
}

// TestProcessesShareAMemory: what a process has told the store outlives it, for a day after the last process
// was there.
func TestProcessesShareAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newNotes(t)
		ctx, end := context.WithCancel(t.Context())
		one, had, _ := remembering(store, "a")
		two, other, _ := remembering(store, "b")
		var running sync.WaitGroup
		running.Go(func() { _ = one.Run(ctx) })
		running.Go(func() { _ = two.Run(ctx) })
		<-time.After(10 * time.Second)
		synctest.Wait()
		calls := store.calls.Load()
		if got := known(t, store); got != "a b" {
			t.Errorf("got %q", got)
		}
		<-time.After(30 * time.Second)
		synctest.Wait()
		if now := store.calls.Load(); now > calls+3 {
			t.Errorf("without news: %d calls", now-calls)
		}
		<-time.After(48 * time.Hour)
		synctest.Wait()
		if got := known(t, store); got != "a b" {
			t.Errorf("after two days: got %q", got)
		}
		had.add("c") // just before the end
		other.add("d")
		end()
		running.Wait()
		if got := known(t, store); got != "a b c" && got != "a b d" && got != "a b c d" {
			t.Errorf("after the end: got %q", got)
		}
		<-time.After(25 * time.Hour)
		if got := known(t, store); got != "" {
			t.Errorf("after a day without a process: got %q", got)
		}
	})
}

// TestALostWriteComesAgain: two processes that write at once overwrite each other, and the one that is
// overwritten writes again.
func TestALostWriteComesAgain(t *testing.T) {
	store := newNotes(t)
	one, _, _ := remembering(store, "a")
	two, _, _ := remembering(store, "b")
	store.before = func() {
		store.before = nil
		if err := two.Save(t.Context()); err != nil { // reads and writes between the other's read and write
			t.Error(err)
		}
	}
	for range 3 {
		for _, s := range []*state.Shared{one, two} {
			if err := s.Save(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := known(t, store); got != "a b" {
		t.Errorf("got %q", got)
	}
}

// TestAStoreThatIsAway is recalled when it is back. Until then failures are counted. Those of a store that
// answers are logged once a minute.
func TestAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newNotes(t)
		if first, _, _ := remembering(store, "before"); first.Save(t.Context()) != nil {
			t.Fatal("it was not saved")
		}
		s, w, log := remembering(store, "meanwhile")
		for i := range 30 {
			if store.fail = backends.ErrUnavailable; i >= 10 {
				store.fail = errors.New("it is full")
			}
			if s.Save(t.Context()) == nil {
				t.Fatal("it was saved")
			}
			<-time.After(time.Second)
		}
		if lines := strings.Count(log.String(), "\n"); s.Failed() != 30 || lines != 1 || !strings.Contains(log.String(), "full") {
			t.Errorf("%d failures; got\n%s", s.Failed(), log)
		}
		store.fail = nil
		if err := s.Save(t.Context()); err != nil || w.recalled != "before" || known(t, store) != "before meanwhile" {
			t.Errorf("back: %v, recalled %q", err, w.recalled)
		}
	})
}

// TestSharedBounds: of what is too long half the rows are kept, and what no process has written is left
// out.
func TestSharedBounds(t *testing.T) {
	store := newNotes(t)
	s, w, _ := remembering(store)
	for i := range 9000 {
		sum := sha512.Sum512(fmt.Append(nil, i)) // deflate cannot shorten it by more than half
		w.add(fmt.Sprintf("%x%x", sum, sha512.Sum512(sum[:])))
	}
	if err := s.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(known(t, store))); n < 2000 || n > 5000 {
		t.Errorf("%d of 9,000 rows are kept", n)
	}
	_, texts, err := store.Notes(t.Context(), sharedName, backends.NotesBound{Fields: 1, Bytes: 1<<20 + 5})
	if err != nil || len(texts) != 1 {
		t.Errorf("got %d texts, %v", len(texts), err)
	}
	for _, foreign := range []string{"no deflate", "\x00", string(make([]byte, 1<<20))} {
		change := backends.NotesChange{Set: "words", Text: foreign, Most: 1, Until: time.Now().Add(time.Hour)}
		if _, _, err := store.ChangeNotes(t.Context(), sharedName, change); err != nil {
			t.Fatal(err)
		}
		if got := known(t, store); got != "" {
			t.Errorf("%.20q: recalled %.20q", foreign, got)
		}
	}
	for i := range 9 { // of another version
		change := backends.NotesChange{Set: fmt.Sprint("foreign", i), Text: "x", Most: 10, Until: time.Now().Add(time.Hour)}
		if _, _, err := store.ChangeNotes(t.Context(), sharedName, change); err != nil {
			t.Fatal(err)
		}
	}
	other, _, _ := remembering(store, "new")
	if err := other.Save(t.Context()); err != nil || known(t, store) != "new" {
		t.Errorf("beside foreign fields: %v, %.20q", err, known(t, store))
	}
}

// TestManyProcessesLoseNothing: of 64 processes that save at once each one's news is remembered when all have
// saved once more.
func TestManyProcessesLoseNothing(t *testing.T) {
	store := newNotes(t)
	var all [64]*state.Shared
	var running sync.WaitGroup
	for i := range all {
		s, w, _ := remembering(store, fmt.Sprintf("w%02d", i))
		all[i] = s
		running.Go(func() {
			for n := range 5 {
				w.add(fmt.Sprintf("w%02d-%02d", i, n))
				if err := s.Save(t.Context()); err != nil {
					t.Error(err)
				}
				_, _ = s.Saved(), s.Failed()
			}
		})
	}
	running.Wait()
	for _, s := range all {
		if err := s.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(strings.Fields(known(t, store))); n != len(all)*6 {
		t.Errorf("%d words are remembered, want %d", n, len(all)*6)
	}
}
