package state

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	// sharedName is the name of the notes in the store, behind the prefix of all keys. Its number is the
	// form of the texts: another version has another name.
	sharedName = "rls:memory:1"
	lifetime   = 24 * time.Hour
	// maxShared bounds a text in the store, and maxPlain one that is no longer compressed, in bytes.
	maxShared = 1 << 20
	maxPlain  = 16 << 20
	// minWait is the least time between two writes. A process waits share times as long as a write
	// took, so that it gives its memory at most 1 % of a processor.
	minWait = time.Second
	maxWait = time.Minute
	share   = 100
	// touch is how often the texts are written also without news, so that they live as long as a
	// process does.
	touch   = time.Hour
	maxRows = 10_000
	// maxFields bounds the fields of the hash, and maxHash its bytes, those that are not of this version
	// included: they are left alone.
	maxFields = 64
	maxHash   = 4 << 20
)

// SharedPart is a part of the process that the store remembers, together with those of the other
// processes.
type SharedPart struct {
	Name string
	// Changes tells when there is something new: it counts what has changed the part.
	Changes func() uint64
	// Recall adds what Merge has kept, at the start.
	Recall func(text []byte)
	// Merge returns the part with what text has of other processes, at most n rows. Without news it
	// returns text.
	Merge func(text []byte, n int) []byte
}

// Shared has a store remember parts of the processes that share it, for a day. It promises that
// requests never wait for it, that it sends few commands a second, and that what the store
// does not take is dropped and counted. Its methods but Saved and Failed are for one goroutine.
type Shared struct {
	store    backends.Notes
	name     string
	log      *slog.Logger
	parts    []SharedPart
	kept     []uint64 // what Changes were when the store had everything
	recalled bool
	touched  time.Time // when all texts were written
	saved    atomic.Int64
	failed   atomic.Uint64
	warned   time.Time // when a failure was logged
}

// NewShared returns the memory of parts in a store whose keys begin with prefix.
func NewShared(store backends.Notes, prefix string, log *slog.Logger, parts ...SharedPart) *Shared {
	return &Shared{store: store, name: prefix + sharedName, log: log, parts: parts, kept: make([]uint64, len(parts))}
}

// Save has the store remember what is new. The first time, and again until the store has answered, it
// recalls what the store remembers.
func (s *Shared) Save(ctx context.Context) error {
	err := s.save(ctx)
	if err == nil {
		return nil
	}
	s.failed.Add(1)
	// That the store is away is in the log already.
	if now := time.Now(); !errors.Is(err, backends.ErrUnavailable) && now.Sub(s.warned) >= time.Minute {
		s.warned = now
		s.log.Error("the store does not remember events, denials and the limits in force", "key", s.name, "error", err)
	}
	return err
}

func (s *Shared) save(ctx context.Context) error {
	due := time.Since(s.touched) >= touch
	changes, news := make([]uint64, len(s.parts)), due
	for i, p := range s.parts {
		changes[i] = p.Changes()
		news = news || changes[i] != s.kept[i]
	}
	if !news {
		return nil
	}
	_, texts, err := s.store.Notes(ctx, s.name, backends.NotesBound{Fields: maxFields, Bytes: maxHash})
	if err != nil {
		return err
	}
	write := map[string]string{}
	for i, p := range s.parts {
		known := unpack(texts[p.Name])
		if !s.recalled {
			p.Recall(known)
		}
		if !due && changes[i] == s.kept[i] {
			continue
		}
		for n := maxRows; n > 0; n /= 2 {
			merged := p.Merge(known, n)
			if !due && bytes.Equal(merged, known) {
				break
			}
			if packed := pack(merged); len(packed) <= maxShared {
				write[p.Name] = packed
				break
			}
		}
	}
	s.recalled = true
	if len(write) == 0 {
		s.kept = changes // another look has found that no other process has overwritten it
		return nil
	}
	until := time.UnixMicro(s.store.Now()).Add(lifetime)
	for name, text := range write {
		c := backends.NotesChange{Set: name, Text: text, Most: maxFields, Until: until}
		if _, _, err := s.store.ChangeNotes(ctx, s.name, c); err != nil {
			return err
		}
	}
	s.saved.Store(time.Now().UnixMicro())
	if due {
		s.touched = time.Now()
	}
	return nil
}

// Run saves until ctx ends, and then once more within a second. It returns nil: failures are logged and
// counted. After each failure in a row it waits twice as long, up to a minute.
func (s *Shared) Run(ctx context.Context) error {
	failing := minWait
	for {
		began := time.Now()
		wait := minWait
		if s.Save(ctx) != nil {
			failing = min(2*failing, maxWait)
			wait = failing
		} else {
			failing = minWait
		}
		select {
		case <-time.After(max(wait, share*time.Since(began))):
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = s.Save(last)
			return nil
		}
	}
}

// Saved is when the store has last taken something, and Failed how often it failed.
func (s *Shared) Saved() time.Time { return time.UnixMicro(s.saved.Load()) }

// Failed counts the times when the store did not answer or did not take what is new.
func (s *Shared) Failed() uint64 { return s.failed.Load() }

func pack(text []byte) string {
	var b strings.Builder
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		panic(fmt.Sprint("flate: ", err)) // the level is right
	}
	_, _ = w.Write(text)
	_ = w.Close()
	return b.String()
}

// unpack returns what pack has packed; nil if the text is something else, or too long.
func unpack(packed string) []byte {
	if packed == "" || len(packed) > maxShared {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(strings.NewReader(packed)), maxPlain+1))
	if err != nil || len(text) > maxPlain {
		return nil
	}
	return text
}
