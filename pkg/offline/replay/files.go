package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// headSize is the number of bytes of a log in which its first time is looked for.
const headSize = 64 << 10

// logFile is a log that Files reads.
type logFile struct {
	name   string
	first  time.Time // zero if no line has a time
	opened *os.File  // nil if the file is opened again
	text   *bufio.Reader
}

// Files decides the requests of files, also compressed with gzip, and of the standard
// input, which is "-". The file with the oldest first line comes first.
func (r *Replay) Files(names []string) error {
	logs := make([]logFile, len(names))
	for i := range logs {
		l := &logs[i]
		l.name = names[i]
		defer l.close()
		if len(names) > 1 {
			if err := r.look(l); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(logs, func(a, b logFile) int { return a.first.Compare(b.first) })
	for i := range logs {
		l := &logs[i]
		if err := l.open(); err != nil {
			return err
		}
		if err := r.Log(l.name, l.text); err != nil {
			return err
		}
		l.close()
	}
	return nil
}

// look finds the time of the first line of a log whose time does not stand out from the lines
// behind it. It closes the log if the log can be opened again.
func (r *Replay) look(l *logFile) error {
	if err := l.open(); err != nil {
		return err
	}
	head, _ := l.text.Peek(headSize) // an error comes again when the log is read
	if len(head) == headSize {       // the last line is cut
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	var lines []request
	for line := range bytes.Lines(bytes.TrimPrefix(head, []byte(byteOrderMark))) {
		if line = bytes.TrimSpace(line); len(line) > 0 && len(lines) <= lookahead {
			lines = append(lines, r.options.Mapping.read(line))
		}
	}
	for i := range lines {
		if q := &lines[i]; q.timed() && !q.standsOut(lines[i+1:]) {
			l.first = q.at
			break
		}
	}
	if info, err := l.opened.Stat(); err == nil && info.Mode().IsRegular() {
		l.close()
	}
	return nil
}

// open opens the log unless it is open.
func (l *logFile) open() (err error) {
	if l.opened != nil {
		return nil
	}
	if l.opened = os.Stdin; l.name == "-" {
		l.name = "<stdin>"
	} else if l.opened, err = os.Open(l.name); err != nil {
		return err
	}
	l.text = bufio.NewReaderSize(l.opened, headSize)
	head, err := l.text.Peek(2)
	if gzipped := []byte{0x1f, 0x8b}; bytes.Equal(head, gzipped) { // RFC 1952, section 2.3.1
		var unzipped *gzip.Reader
		unzipped, err = gzip.NewReader(l.text)
		l.text = bufio.NewReaderSize(unzipped, headSize)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

func (l *logFile) close() {
	if l.opened != nil && l.opened != os.Stdin {
		_ = l.opened.Close()
		l.opened = nil
	}
}
