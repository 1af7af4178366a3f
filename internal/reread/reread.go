// Package reread keeps values in step with the files that they come from, such as
// certificates and passwords, so that renewed files are used without a restart.
//
// A [Watcher] reads the files of its values again four times a second while it runs. It
// promises that a value is replaced within a second after its files changed,
// that files with wrong contents change nothing (or take away, see [Open]) and are logged
// once, and that no log line has the contents of a file. It leaves to its users to ask for
// the value whenever they need it.
package reread

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// every is how often the files are read again. Reading them costs more than a
// notification of the file system would, but no change can be missed.
const every = 250 * time.Millisecond

// Watcher reads the files of the values that were opened with it.
type Watcher struct {
	log *slog.Logger
	// Changed, if not nil, is called after a changed value has come into force, with the name
	// of the value. It must be set before Run.
	Changed func(name string, value any)

	mu     sync.Mutex
	values []interface{ reread(*Watcher) }
}

// NewWatcher returns a watcher that logs to log.
func NewWatcher(log *slog.Logger) *Watcher { return &Watcher{log: log} }

// Run reads all the files again, four times a second, until ctx ends. It returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.mu.Lock()
			values := w.values
			w.mu.Unlock()
			for _, v := range values {
				v.reread(w)
			}
		}
	}
}

// Value is a value that comes from files.
type Value[T any] struct {
	name    string
	paths   []string
	parse   func(contents []string) (T, error)
	remain  func(last T, contents []string) T // nil: all of it
	inForce atomic.Pointer[T]
	judged  contents // the contents that were parsed last
	seen    contents // the contents that were read last
}

// Open reads the files at paths and returns what parse makes of their contents,
// which are in the order of the paths; an empty path has the content "". It fails
// when a file cannot be read now or parse fails. The name stands in the log when the
// files change later. The errors of parse must not show secrets.
//
// After a change to files that are wrong or cannot be read, the last value stays in force.
// If its parts count only while the files have them, such as tokens, remain returns what
// is still in force; its contents are nil if a file cannot be read.
func Open[T any](w *Watcher, name string, paths []string, parse func(contents []string) (T, error), remain func(last T, contents []string) T) (*Value[T], error) {
	v := &Value[T]{name: name, paths: paths, parse: parse, remain: remain, judged: read(paths)}
	if err := v.judge(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.values = append(w.values, v)
	return v, nil
}

// Now is the value that is in force. It is safe for concurrent use.
func (v *Value[T]) Now() T { return *v.inForce.Load() }

// reread reads the files. It parses their contents only if it has read the same
// contents twice in a row, because a write is not atomic, and a certificate and its
// key are seldom written at the same moment.
func (v *Value[T]) reread(w *Watcher) {
	next := read(v.paths)
	settled := next.equal(v.seen)
	v.seen = next
	if !settled || next.equal(v.judged) {
		return
	}
	v.judged = next
	if err := v.judge(); err != nil {
		stays := "their last good contents stay in force"
		if v.remain != nil {
			left := v.remain(v.Now(), next.files)
			v.inForce.Store(&left)
			stays = "of their last good contents only the parts that they still have stay in force"
		}
		w.log.Error("changed files refused, "+stays, "for", v.name, "error", err.Error())
		return
	}
	w.log.Info("changed files are in force", "for", v.name)
	if w.Changed != nil {
		w.Changed(v.name, v.Now())
	}
}

func (v *Value[T]) judge() error {
	if v.judged.err != nil {
		return v.judged.err
	}
	value, err := v.parse(v.judged.files)
	if err == nil {
		v.inForce.Store(&value)
	}
	return err
}

// contents are the bytes of some files, or why one of them cannot be read.
type contents struct {
	files []string
	err   error
}

func (c contents) equal(other contents) bool {
	return fmt.Sprint(c.err) == fmt.Sprint(other.err) && slices.Equal(c.files, other.files)
}

func read(paths []string) (c contents) {
	for _, path := range paths {
		var content []byte
		if path != "" {
			if content, c.err = os.ReadFile(path); c.err != nil {
				return contents{err: c.err}
			}
		}
		c.files = append(c.files, string(content))
	}
	return c
}

// File opens the file that the setting names, and returns a function that returns its value now. Errors
// name the setting and the file, in the log too when the file changes.
func File[T any](w *Watcher, setting, file string, parse func(content string) (T, error)) (func() T, error) {
	opened, err := Open(w, setting, []string{file}, func(contents []string) (T, error) {
		value, err := parse(contents[0])
		if err != nil {
			return value, fmt.Errorf("%s %w", file, err)
		}
		return value, nil
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return opened.Now, nil
}
