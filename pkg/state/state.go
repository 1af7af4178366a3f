// Package state keeps the memory of a process in a file, so that it outlives the process.
//
// It promises that the file is whole: a new one takes the place of the old one in one step, after
// it is on the disk, and its checksum is verified before anything of it is read. A file that is
// cut, corrupt or of another version is set aside and never keeps the process from its work. Of
// several processes with the same file, the first one has it.
package state

import (
	"archive/zip"
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"example.org/rls/internal/pace"
)

// version is the first line of a file. Behind it are a ZIP archive with the parts, and the checksum of all
// before it in four bytes.
const version = "rls state 4\n"

// Part is a part of the process that the file remembers.
type Part struct {
	Name string
	Save func(io.Writer) error
	Load func(io.Reader) error
}

// File is the file of a process. It is safe for concurrent use, but for Load and Save.
type File struct {
	path   string
	log    *slog.Logger
	lock   *os.File // nil: another process has the file
	parts  []Part
	saved  atomic.Int64
	failed atomic.Uint64
	warned time.Time // when a failure was logged
}

// Open takes the file at path for this process. If another process has it, Open logs that, and the
// File then reads and writes nothing. It fails if the lock beside the file cannot be opened.
func Open(path string, log *slog.Logger) (*File, error) {
	f := &File{path: path, log: log.With("file", path)}
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	switch err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		f.lock = lock
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		f.log.Warn("another process has the state file: this one neither reads nor writes it, and forgets its counters when it ends")
		return f, lock.Close()
	}
	return nil, errors.Join(fmt.Errorf("lock %s.lock: %w", path, err), lock.Close())
}

// Load reads the parts from the file. A part that the file does not have stays as it is. From then on
// f saves the same parts. A file that cannot be used is renamed to end in .bad, in the
// place of an earlier one, and logged.
func (f *File) Load(parts ...Part) {
	f.parts = parts
	if f.lock == nil {
		return
	}
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = errors.Join(f.read(file), file.Close())
	}
	if err == nil {
		return
	}
	f.log.Error("the state file cannot be used and is set aside: counters begin anew", "error", err, "aside", f.path+".bad")
	if err = os.Rename(f.path, f.path+".bad"); err != nil {
		f.log.Error("the state file cannot be set aside", "error", err)
	}
}

func (f *File) read(file *os.File) error {
	size, err := verify(file)
	if err != nil {
		return err
	}
	archive, err := zip.NewReader(io.NewSectionReader(file, int64(len(version)), size), size)
	if err != nil {
		return err
	}
	for _, p := range f.parts {
		of, err := archive.Open(p.Name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(p.Load(of), of.Close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

var (
	errVersion  = errors.New("it is no state file of this version")
	errChecksum = errors.New("it is cut or corrupt: its checksum is wrong")
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// verify compares the first line and the checksum, and returns the bytes of the archive between them.
func verify(file *os.File) (size int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	sum := crc32.New(castagnoli)
	first, want := make([]byte, len(version)), make([]byte, sum.Size())
	whole := io.TeeReader(file, sum)
	if _, err := io.ReadFull(whole, first); err != nil || string(first) != version {
		return 0, errVersion
	}
	size = info.Size() - int64(len(first)+len(want))
	if _, err := io.CopyN(io.Discard, whole, size); err != nil {
		return 0, errChecksum
	}
	if _, err := io.ReadFull(file, want); err != nil || binary.LittleEndian.Uint32(want) != sum.Sum32() {
		return 0, errChecksum
	}
	return size, nil
}

// Save writes the file anew. If that fails, the last one stays.
func (f *File) Save() error {
	if f.lock == nil {
		return nil
	}
	err := f.replace()
	if err == nil {
		f.saved.Store(time.Now().UnixMicro())
		return nil
	}
	f.failed.Add(1)
	if now := time.Now(); now.Sub(f.warned) >= time.Minute {
		f.warned = now
		f.log.Error("the state cannot be written: the last state file stays", "error", err)
	}
	return err
}

// replace writes a new file beside the old one, and then puts it in its place.
func (f *File) replace() (err error) {
	file, err := os.OpenFile(f.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(f.write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	if err = os.Rename(file.Name(), f.path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func (f *File) write(file *os.File) error {
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(file, sum), 64<<10)
	_, _ = w.WriteString(version)
	archive := zip.NewWriter(w)
	for _, p := range f.parts {
		of, err := archive.CreateHeader(&zip.FileHeader{Name: p.Name}) // not compressed
		if err == nil {
			err = p.Save(of)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if err := errors.Join(archive.Close(), w.Flush()); err != nil {
		return err
	}
	if err := binary.Write(file, binary.LittleEndian, sum.Sum32()); err != nil {
		return err
	}
	return file.Sync()
}

// Run saves each interval until ctx ends. It returns nil: failures are logged and counted.
func (f *File) Run(ctx context.Context, interval time.Duration) error {
	for i := range pace.Every(ctx, interval) {
		if i > 0 {
			_ = f.Save()
		}
	}
	return nil
}

// Saved is when the file was last written, and Failed how often that failed.
func (f *File) Saved() time.Time { return time.UnixMicro(f.saved.Load()) }

// Failed counts the times when the file could not be written.
func (f *File) Failed() uint64 { return f.failed.Load() }

// Close saves once more, and leaves the file to other processes. Run must have ended.
func (f *File) Close() error {
	if f.lock == nil {
		return nil
	}
	return errors.Join(f.Save(), f.lock.Close())
}
