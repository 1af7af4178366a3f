package sources

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long a folder has to stay as it is before it is published:
	// editors and copies go through half-written and missing files.
	quiet = 100 * time.Millisecond
	// patience is when a folder that never stays as it is is published all the
	// same.
	patience = 2 * time.Second
)

// Files is the source that reads a folder below a root.
type Files struct {
	// Root, a folder or a symbolic link to one.
	Root string
	// Below is the path from Root to the folder with the rules; may be "".
	Below          string
	IgnoreDotFiles bool
	// WatchRoot reads again only when Root leads to another folder than
	// before. Otherwise, and as long as the rules are refused, every change of
	// the folder's files counts. As with envoyproxy/ratelimit, WatchRoot also
	// reads what stands beside the folder (see Folder.Beside).
	WatchRoot bool
	// Poll is how often to look for changes that went unnoticed, > 0.
	Poll time.Duration
	Log  *slog.Logger
}

var _ Source = (*Files)(nil)

// Folder is where the rules are.
func (f *Files) Folder() Folder {
	return Folder{Path: filepath.Join(f.Root, f.Below), IgnoreDotFiles: f.IgnoreDotFiles, Beside: f.WatchRoot && f.Below != ""}
}

// Run implements [Source]. It returns nil when ctx ends.
func (f *Files) Run(ctx context.Context, publish Publish) error {
	w := &watch{Files: f}
	defer func() { w.close() }()

	inForce, root := w.read(), rootOf(f.Root)
	refused := publish(inForce.files, inForce.err) != nil

	poll := time.NewTicker(f.Poll)
	defer poll.Stop()
	var (
		settle   <-chan time.Time // when to look again, nil when nothing happened
		settling *snapshot        // what the folder held when it was last seen to change
		since    time.Time        // when it began to change
	)
	// The first notification starts the clock. Later ones do not push it back,
	// or a folder that changes all the time would never be read.
	look := func() {
		if settle == nil {
			settle = time.After(quiet)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-w.events():
			if open && w.concerns(event.Name) {
				look()
			}
			continue
		case err, open := <-w.errors():
			if open {
				f.Log.Warn("rules folder: changes may have been missed, reading it again", "error", err.Error())
				look()
			}
			continue
		case <-poll.C:
			if settling != nil {
				continue
			}
		case <-settle:
			settle = nil
		}

		now := rootOf(f.Root)
		if f.WatchRoot && !refused && now.same(root) {
			continue
		}
		next := w.read()
		switch {
		case next.same(inForce):
			settling, root = nil, now
		case settling == nil:
			settling, since = next, time.Now()
			look()
		case next.same(settling) || time.Since(since) > patience:
			inForce, root, settling = next, now, nil
			refused = publish(next.files, next.err) != nil
		default:
			settling = next
			look()
		}
	}
}

// root is the folder that a path leads to.
type root struct{ info os.FileInfo }

func rootOf(path string) root {
	info, err := os.Stat(path)
	if err != nil {
		return root{}
	}
	return root{info}
}

func (r root) same(o root) bool {
	if r.info == nil || o.info == nil {
		return r.info == nil && o.info == nil
	}
	return os.SameFile(r.info, o.info)
}

// watch tells of changes to the folder and to the path that leads to it.
type watch struct {
	*Files
	notify *fsnotify.Watcher // nil when the system has none to give
}

// read reads the folder and watches it from before it is read, so that no
// change falls in between. Each time a new set of watches begins: watches
// follow folders, not the links that lead to them.
func (w *watch) read() *snapshot {
	w.close()
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.Log.Warn("rules folder: no notifications, polling only", "poll", w.Poll, "error", err.Error())
	}
	w.notify = notify
	for _, path := range w.path() {
		w.add(filepath.Dir(path))
	}
	s := &snapshot{}
	s.files, s.err = w.Folder().read(w.add)
	return s
}

func (w *watch) add(dir string) {
	if w.notify != nil {
		// A folder that cannot be watched (missing, too many) is polled.
		_ = w.notify.Add(dir)
	}
}

// path is Root, the folder with the rules, and those between them.
func (w *watch) path() []string {
	path := filepath.Clean(w.Root)
	steps := []string{path}
	for step := range strings.SplitSeq(filepath.Clean(w.Below), string(filepath.Separator)) {
		path = filepath.Join(path, step)
		steps = append(steps, path)
	}
	return steps
}

// concerns reports whether a change of name can change the rules.
func (w *watch) concerns(name string) bool {
	steps, name := w.path(), filepath.Clean(name) // "./rules" below a relative root
	for _, step := range steps {
		if name == step {
			return true
		}
	}
	last := steps[len(steps)-1]
	return strings.HasPrefix(name, last+string(filepath.Separator)) || w.WatchRoot && strings.HasPrefix(name, last+".")
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *watch) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w *watch) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}
