package state_test

import (
	"bytes"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/state"
)

// texts is a store in this process.
type texts struct {
	backends.Store
	mu    sync.Mutex
	by    map[string]map[string]string
	ends  time.Time
	calls int
	fail  error
	// before is called before each write; it may be nil.
	before func()
}

func (s *texts) Texts(_ context.Context, key string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if time.Now().After(s.ends) {
		return nil, s.fail
	}
	return maps.Clone(s.by[key]), s.fail
}

func (s *texts) SetTexts(_ context.Context, key string, set map[string]string, lifetime time.Duration) error {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls += 2
	if s.fail != nil {
		return s.fail
	}
	if s.by[key] == nil || time.Now().After(s.ends) {
		s.by[key] = map[string]string{}
	}
	maps.Copy(s.by[key], set)
	s.ends = time.Now().Add(lifetime)
	return nil
}

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
func remembering(store *texts, has ...string) (*state.Shared, *words, *bytes.Buffer) {
	w := &words{has: map[string]bool{}}
	for _, word := range has {
		w.add(word)
	}
	var log bytes.Buffer
	return state.NewShared(store, "p|", slog.New(slog.NewTextHandler(&log, nil)), w.part()), w, &log
}

// known is what a new process recalls.
func known(t *testing.T, store *texts) string {
	t.Helper()
	s, w, _ := remembering(store)
	if err := s.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.recalled
}

func newTexts() *texts { return &texts{by: map[string]map[string]string{}} }

// TestProcessesShareAMemory: what a process has told the store outlives it, for a day after the last process
// was there.
func TestProcessesShareAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newTexts()
		ctx, end := context.WithCancel(t.Context())
		one, had, _ := remembering(store, "a")
		two, other, _ := remembering(store, "b")
		var running sync.WaitGroup
		running.Go(func() { _ = one.Run(ctx) })
		running.Go(func() { _ = two.Run(ctx) })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		calls := store.calls
		if got := known(t, store); got != "a b" {
			t.Errorf("got %q", got)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if store.calls > calls+3 {
			t.Errorf("without news: %d calls", store.calls-calls)
		}
		time.Sleep(48 * time.Hour)
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
		time.Sleep(25 * time.Hour)
		if got := known(t, store); got != "" {
			t.Errorf("after a day without a process: got %q", got)
		}
	})
}

// TestALostWriteComesAgain: two processes that write at once overwrite each other, and the one that is
// overwritten writes again.
func TestALostWriteComesAgain(t *testing.T) {
	store := newTexts()
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
		store := newTexts()
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
			time.Sleep(time.Second)
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
	store := newTexts()
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
	for key, of := range store.by {
		if len(of["words"]) > 1<<20 || key != "p|rls-memory|1" {
			t.Errorf("%s has %d bytes", key, len(of["words"]))
		}
		for _, foreign := range []string{"no deflate", strings.Repeat("x", 2<<20), "\x00"} {
			of["words"] = foreign
			if got := known(t, store); got != "" {
				t.Errorf("%.20q: recalled %.20q", foreign, got)
			}
		}
	}
}
