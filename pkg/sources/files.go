package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"example.org/rls/pkg/descriptors/yaml"
)

const (
	// quiet is how long the files must stay unchanged before they are published.
	// Editors and copies write files in several steps, and a half-written or
	// missing file must not become the rules.
	quiet = 100 * time.Millisecond
	// patience bounds that wait: files that change all the time are published
	// this long after the first change.
	patience = 2 * time.Second
	// lookEvery is how often a process looks at the files, so that with quiet a change is read within
	// 2 s. At 1,000 files it costs 1.6 ms a second (BenchmarkLook).
	lookEvery = 1750 * time.Millisecond
)

// Files is the source that reads the files of one folder and watches them.
//
// A folder without files is a valid set of rules, without limits, when Run
// starts. Once rules from files are in force, a folder that disappears or loses
// all its files changes nothing: the rules stay in force and Gone is called.
// To end all limits, an operator leaves a file with a domain and no descriptors.
type Files struct {
	// Root is the path of a folder or of a symbolic link to one.
	Root string
	// Below is the path from Root to the folder with the rules; "" is Root
	// itself.
	Below string
	// IgnoreDotFiles is [Folder.IgnoreDotFiles].
	IgnoreDotFiles bool
	// WatchRoot publishes files again only when Root is another folder, or another
	// link, than before, and tables when they change. While the rules are refused or the files
	// are gone, every change of the files counts. As in envoyproxy/ratelimit, WatchRoot also reads the
	// files that stand beside the folder (see [Folder.Beside]).
	WatchRoot bool
	// Every is the time between two looks at the files; 0 is 1.75 s.
	Every time.Duration
	// Reload, if not nil, asks for all files: for each value they are read and published at
	// once, whether they changed or not and whatever WatchRoot says.
	Reload <-chan struct{}
	// Again, if not nil, has a value for each time that the files are to be published again as they
	// were read last.
	Again <-chan struct{}
	// Gone is called with true when the files of the rules in force are gone, and
	// with false when there are files again.
	Gone func(bool)
	// Loading, if not nil, is called with true before files are parsed while
	// rules are in force, and with false when the new rules are loaded.
	Loading func(bool)
	Log     *slog.Logger
}

// Folder is the folder with the rules.
func (f *Files) Folder() Folder {
	return Folder{Path: filepath.Join(f.Root, f.Below), IgnoreDotFiles: f.IgnoreDotFiles, Beside: f.WatchRoot && f.Below != "", tables: true}
}

// Run implements [Source]. It returns nil when ctx ends. When the folder does
// not exist and no file stands beside it, Run publishes nothing and returns an
// error that wraps [ErrNoFolder] and names the path.
func (f *Files) Run(ctx context.Context, publish Publish) error {
	s := state{Files: f, publish: publish, root: rootOf(f.Root)}
	defer func() { s.root.close() }()
	s.looked, _ = f.Folder().look()
	s.seen = f.Folder().read()
	path := f.Folder().Path
	if _, err := os.Stat(path); s.seen.empty() && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, ErrNoFolder)
	}
	s.take(s.seen)

	look := time.NewTicker(cmp.Or(f.Every, lookEvery))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.Reload:
			s.settle = nil
			s.read(true)
		case <-f.Again:
			if !s.gone {
				s.take(s.seen)
			}
		case <-look.C:
			if s.settle == nil && s.changed() {
				s.read(false)
			}
		case <-s.settle:
			s.settle = nil
			s.read(false)
		}
	}
}

// state has the rules that one Run has read last, and whether they are in force.
type state struct {
	*Files
	publish Publish
	root    root      // that of seen
	seen    *snapshot // the files that were taken last
	looked  uint64    // Folder.look when they were looked at last

	settle   <-chan time.Time // fires when to read again; nil when nothing happened
	settling *snapshot        // the files at the last change that was seen
	since    time.Time        // when they began to change

	refused bool // the files published last were refused
	inForce bool // the rules in force come from at least one file
	gone    bool // and all files are gone since
}

// changed reports whether the files may be others than when they were looked at last.
func (s *state) changed() bool {
	before, fresh := s.looked, false
	s.looked, fresh = s.Folder().look()
	return fresh || s.looked != before || s.seen.err != nil || s.WatchRoot && !s.root.still(s.Root)
}

// soon has the files read again when they may have settled.
func (s *state) soon() { s.settle = time.After(quiet) }

// read reads the files, and takes them when they have changed and settled since, or when all are asked
// for.
func (s *state) read(asked bool) {
	now := rootOf(s.Root)
	next := s.Folder().read()
	changed := !next.same(s.seen)
	onlyTables := !asked && s.WatchRoot && now.same(s.root) && !s.refused && !s.gone && !next.empty()
	if onlyTables {
		next = s.seen.with(next)
	}
	switch {
	case !asked && next.same(s.seen):
		s.settling = nil
		s.root, now = now, s.root
		s.Log.Debug("rules folder: read again, nothing to load", "folder", s.Folder().Path, "changed", changed)
	case !asked && s.settling == nil:
		s.settling, s.since = next, time.Now()
		s.soon()
	case asked || next.same(s.settling) || time.Since(s.since) > patience:
		s.seen, s.settling = next, nil
		s.root, now = now, s.root
		if s.take(next); s.refused && onlyTables {
			s.soon() // files that changed with the tables count now
		}
	default:
		s.settling = next
		s.soon()
	}
	now.close()
}

// take publishes the files. When all files of the rules in force are gone, it
// calls Gone instead and leaves the rules in force.
func (s *state) take(files *snapshot) {
	gone := files.empty() && s.inForce
	if gone {
		s.Log.Warn("rules folder: all files are gone, the rules in force stay; to end all limits leave a domain without descriptors, or to end overlays leave `overlays: []`",
			"folder", s.Folder().Path)
	}
	if gone != s.gone {
		s.Gone(gone)
	}
	if s.gone = gone; gone {
		return
	}
	if s.inForce && s.Loading != nil {
		s.Loading(true)
		defer s.Loading(false)
	}
	s.refused = s.publish(yaml.ReadAll(files.files), files.err) != nil
	if !s.refused {
		s.inForce = len(files.files) > 0
	}
}

// root identifies the folder to which a path leads, and the links on the way. It
// keeps the folder open: the file system then gives the folder's inode number to no
// other folder, even after its removal.
type root struct {
	links  []os.FileInfo
	info   os.FileInfo // nil if there is no folder
	folder *os.File    // nil if it cannot be opened
}

// maxLinks bounds the links that are followed, because they can lead in circles.
const maxLinks = 40

func rootOf(path string) (r root) {
	if r.info, _ = os.Stat(path); r.info != nil && r.info.IsDir() {
		if r.folder, _ = os.Open(path); r.folder != nil {
			r.info, _ = r.folder.Stat()
		}
	}
	link := filepath.Clean(path)
	for len(r.links) < maxLinks {
		info, err := os.Lstat(link)
		if err != nil || info.Mode().Type() != fs.ModeSymlink {
			break
		}
		r.links = append(r.links, info)
		target, _ := os.Readlink(link)
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		link = target
	}
	return r
}

// same reports whether r and o are one folder to which the same links lead. A link
// that was replaced in between is another one: its folder may have changed while the
// link led elsewhere.
func (r root) same(o root) bool {
	if r.info == nil || o.info == nil {
		return r.info == nil && o.info == nil
	}
	return os.SameFile(r.info, o.info) && slices.EqualFunc(r.links, o.links, func(a, b os.FileInfo) bool {
		return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
	})
}

// still reports whether path leads to r.
func (r root) still(path string) bool {
	now := rootOf(path)
	defer now.close()
	return now.same(r)
}

// close closes the folder; without one it does nothing.
func (r root) close() { _ = r.folder.Close() }
