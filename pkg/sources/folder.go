package sources

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

// TestFile is the end of the names of files with tests of rules. They are no rules.
const TestFile = "_test.yaml"

// Folder is a folder of rules: every regular file in it and in its subfolders,
// unless its name ends in TestFile or [rules.TableFile]. Symbolic links are followed. A folder
// that does not exist has no files. If Path is no folder but a file or a pipe, this is read as
// the only file.
//
// Kubernetes mounts a ConfigMap as links through ..data to a folder named
// ..<date>. Names that start with two dots are left out, so that each file is
// read once, under the name that its author gave it.
type Folder struct {
	Path           string
	IgnoreDotFiles bool // leave out names that start with one dot, too
	// Beside also reads the files and folders in the same parent folder whose
	// names start with the folder's own name and a dot: config.yaml beside
	// config.
	Beside bool
	// Dangling, if not nil, is called for each link whose target does not exist.
	// Locks of editors (.#NAME) are such links by design and are left out.
	Dangling func(path string)
	// LeftOut, if not nil, is called for each file whose name ends in TestFile or [rules.TableFile].
	LeftOut func(path string)

	tables bool // tables beside a Path that is a file belong to it
}

// Read returns the files in the order of their paths, and after them the files
// beside the folder. Its error joins the reasons for all files that cannot be
// read; then it returns no files.
func (f Folder) Read() ([]yaml.Text, error) {
	s := f.read()
	return s.files, s.err
}

// read is Read, and also returns the tables in the folder.
func (f Folder) read() *snapshot {
	r := folderReader{Folder: f}
	r.walk(func(path string, _ os.FileInfo) { r.file(path) })
	if len(r.errs) > 0 {
		return &snapshot{err: errors.Join(r.errs...)}
	}
	return &snapshot{files: r.files, tables: r.tables}
}

// tick is longer than the time between two changes of a file to which a file system gives the same
// time: FAT counts in 2 s.
const tick = 3 * time.Second

// look is a sum of the names, sizes, times and identities of the files that read reads. fresh says that
// one of them changed a moment ago, and may change again without another sum. It opens no file.
func (f Folder) look() (sum uint64, fresh bool) {
	all, now := xxhash.New(), time.Now()
	r := folderReader{Folder: f}
	var of []byte
	var system unix.Stat_t // has the change time, which no program can set, as `cp -p` sets the modification time
	r.walk(func(path string, info os.FileInfo) {
		of = append(append(of[:0], path...), 0)
		of = binary.AppendVarint(binary.AppendVarint(of, info.Size()), info.ModTime().UnixNano())
		of = binary.AppendUvarint(of, uint64(info.Mode()))
		if unix.Stat(path, &system) == nil {
			of = binary.AppendVarint(binary.AppendUvarint(of, system.Ino), system.Ctim.Nano())
		}
		_, _ = all.Write(of)
		fresh = fresh || now.Sub(info.ModTime()) < tick || now.Sub(time.Unix(system.Ctim.Unix())) < tick
	})
	_, _ = fmt.Fprint(all, r.errs)
	return all.Sum64(), fresh
}

// isTable reports whether a file is a table, by its name.
func isTable(name string) bool { return strings.HasSuffix(name, rules.TableFile) }

type folderReader struct {
	Folder
	found   func(path string, info os.FileInfo)
	entered map[string]bool // by path without links, because links may lead in circles
	files   []yaml.Text
	tables  []table
	errs    []error
}

// walk calls found with each file.
func (r *folderReader) walk(found func(path string, info os.FileInfo)) {
	r.found, r.entered = found, map[string]bool{}
	if info, err := os.Stat(r.Path); err == nil && !info.IsDir() {
		found(r.Path, info)
		if r.Folder.tables {
			r.list(filepath.Dir(r.Path), isTable)
		}
	} else {
		r.folder(r.Path)
	}
	if r.Beside {
		dir, own := filepath.Split(r.Path)
		r.list(filepath.Clean(dir), func(name string) bool { return strings.HasPrefix(name, own+".") })
	}
}

// table is a file that rules may name as a table: only its changes are noticed here.
type table struct {
	path string
	sum  uint64
}

func (r *folderReader) folder(dir string) {
	real, err := filepath.EvalSymlinks(dir)
	if r.failed(err) || r.entered[real] {
		return
	}
	r.entered[real] = true
	r.list(dir, func(name string) bool {
		return !strings.HasPrefix(name, "..") && !(r.IgnoreDotFiles && name[0] == '.')
	})
}

// list reads the entries of a folder whose names are wanted.
func (r *folderReader) list(dir string, wanted func(name string) bool) {
	folder, err := os.Open(dir)
	if r.failed(err) {
		return
	}
	names, err := folder.Readdirnames(-1) // os.ReadDir would ask for their kinds, too
	_ = folder.Close()
	r.failed(err)
	slices.Sort(names)
	for _, name := range names {
		if wanted(name) {
			r.entry(filepath.Join(dir, name))
		}
	}
}

func (r *folderReader) entry(path string) {
	info, err := os.Stat(path)
	switch {
	case r.failed(err):
		r.dangling(path)
	case info.IsDir():
		r.folder(path)
	case info.Mode().IsRegular():
		r.found(path, info)
	}
}

// dangling reports a path that does not exist if it is a link.
func (r *folderReader) dangling(path string) {
	info, err := os.Lstat(path)
	if r.Dangling != nil && err == nil && info.Mode().Type() == fs.ModeSymlink && !strings.HasPrefix(filepath.Base(path), ".#") {
		r.Dangling(path)
	}
}

func (r *folderReader) file(path string) {
	test := strings.HasSuffix(path, TestFile)
	if r.LeftOut != nil && (test || isTable(path)) {
		r.LeftOut(path)
	}
	switch {
	case test:
		return
	case isTable(path):
		if sum, err := sumOf(path); !r.failed(err) {
			r.tables = append(r.tables, table{path, sum})
		}
		return
	}
	content, err := os.ReadFile(path)
	if !r.failed(err) {
		r.files = append(r.files, yaml.Text{Name: path, Content: content})
	}
}

// sumOf is the hash of a file's content.
func sumOf(path string) (uint64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	sum := xxhash.New()
	_, err = io.Copy(sum, descriptors.Yielding(file))
	return sum.Sum64(), err
}

// failed reports whether err is an error, and keeps it unless it says that the
// file does not exist: a link whose target was removed (a ConfigMap that is
// being swapped, an editor's lock) counts as no file.
func (r *folderReader) failed(err error) bool {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.errs = append(r.errs, err)
	}
	return err != nil
}

// snapshot is the files of a folder at one moment, or the reason why they could
// not be read.
type snapshot struct {
	files  []yaml.Text
	tables []table
	err    error
}

// empty reports that the folder could be read and has no files.
func (s *snapshot) empty() bool { return s.err == nil && len(s.files) == 0 }

// with is s with the tables of o, which was read later. If o could not be read it is s.
func (s *snapshot) with(o *snapshot) *snapshot {
	if o.err != nil {
		return s
	}
	return &snapshot{s.files, o.tables, s.err}
}

func (s *snapshot) same(o *snapshot) bool {
	return fmt.Sprint(s.err) == fmt.Sprint(o.err) && slices.Equal(s.tables, o.tables) && slices.EqualFunc(s.files, o.files, func(a, b yaml.Text) bool {
		return a.Name == b.Name && bytes.Equal(a.Content, b.Content)
	})
}
