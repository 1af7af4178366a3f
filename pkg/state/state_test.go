package state_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/state"
)

// memory is a text that a file remembers.
type memory struct {
	text string
	fail error
}

func (m *memory) part(name string) state.Part {
	return state.Part{Name: name, Save: func(w io.Writer) error {
		_, err := io.WriteString(w, m.text)
		return errors.Join(err, m.fail)
	}, Load: func(r io.Reader) error {
		text, err := io.ReadAll(r)
		m.text = string(text)
		return err
	}}
}

// opened is the file as a process that begins has it, and its log.
func opened(t *testing.T, path string, parts ...state.Part) (*state.File, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	f, err := state.Open(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	f.Load(parts...)
	return f, &log
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAFileIsReadAgain: each part finds its own again, whatever other parts the file has, and
// nobody else may read it.
func TestAFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	a, b, c := &memory{text: strings.Repeat("a", 100_000)}, &memory{}, &memory{text: "c"}
	f, log := opened(t, path, a.part("a"), b.part("b"), c.part("c"))
	if err := f.Close(); err != nil || log.Len() > 0 {
		t.Fatal(err, log)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	anew, other, later := &memory{}, &memory{text: "as it was"}, &memory{}
	_, log = opened(t, path, later.part("c"), other.part("d"), anew.part("a"))
	if anew.text != a.text || other.text != "as it was" || later.text != "c" || log.Len() > 0 {
		t.Errorf("got %d bytes, %q, %q; %s", len(anew.text), other.text, later.text, log)
	}
}

// TestWrongFiles: a file that is cut anywhere, has any wrong byte, or is of another version is set
// aside and said, nothing of it is read, and the next one is written.
func TestWrongFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	m := &memory{text: "counters"}
	f, _ := opened(t, path, m.part("m"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole := read(t, path)
	wrong := [][]byte{append([]byte("rls state 1\n"), whole[12:]...), append(bytes.Clone(whole), 0)}
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 0x80
		wrong = append(wrong, changed, whole[:i])
	}
	for _, b := range wrong {
		write(t, path, b)
		m := &memory{text: "none"}
		f, log := opened(t, path, m.part("m"))
		if m.text != "none" || !strings.Contains(log.String(), "is set aside") || !bytes.Equal(read(t, path+".bad"), b) {
			t.Fatalf("%q: got %q, %s", b, m.text, log)
		}
		m.text = "counters"
		if err := f.Close(); err != nil || !bytes.Equal(read(t, path), whole) {
			t.Fatalf("afterwards: %v", err)
		}
	}
}

// TestTheFirstProcessHasTheFile: a second one says so, and neither reads nor writes it.
func TestTheFirstProcessHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	first, second := &memory{text: "first"}, &memory{text: "second"}
	f, _ := opened(t, path, first.part("m"))
	if err := f.Save(); err != nil {
		t.Fatal(err)
	}
	g, log := opened(t, path, second.part("m"))
	if err := errors.Join(g.Save(), g.Close()); err != nil || second.text != "second" || !strings.Contains(log.String(), "another process has the state file") {
		t.Errorf("%v, %q, %s", err, second.text, log)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	opened(t, path, second.part("m"))
	if second.text != "first" {
		t.Errorf("got %q", second.text)
	}
}

// TestTheLastFileStays: while the file cannot be written the last one stays, and the failures are
// counted, and logged once a minute.
func TestTheLastFileStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	m := &memory{text: "good"}
	f, log := opened(t, path, m.part("m"))
	if err := f.Save(); err != nil || f.Saved().IsZero() {
		t.Fatal(err)
	}
	m.text, m.fail = "half", errors.New("no space left on device")
	for range 3 {
		if err := f.Save(); err == nil {
			t.Error("it is written")
		}
	}
	if f.Failed() != 3 || strings.Count(log.String(), "no space left") != 1 {
		t.Errorf("%d failures, %s", f.Failed(), log)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
	f.Close()
	anew := &memory{}
	if opened(t, path, anew.part("m")); anew.text != "good" {
		t.Errorf("got %q", anew.text)
	}
}

func TestInterval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		f, _ := opened(t, path, m.part("m"))
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		began := time.Now()
		if err := f.Run(ctx, 10*time.Second); err != nil {
			t.Error(err)
		}
		if at := f.Saved().Sub(began).Round(time.Millisecond); at != 30*time.Second {
			t.Errorf("last saved after %v", at)
		}
	})
}

func TestNoFolder(t *testing.T) {
	if _, err := state.Open(filepath.Join(t.TempDir(), "none", "state"), slog.Default()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
