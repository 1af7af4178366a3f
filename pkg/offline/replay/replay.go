// Package replay decides the requests of a log again, at the times of the log, and tells
// how rules would have decided them.
//
// It reads Envoy's access logs in JSON, from whose fields a [Mapping] makes requests, and
// the decision log of this program. Lines are read and parsed by several goroutines and
// decided in their order by one. Memory grows with the number of different keys.
package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
)

// Options configures a replay.
type Options struct {
	Rules *descriptors.Tree
	// Against are other rules, which decide the same requests; it may be nil.
	Against *descriptors.Tree
	Mapping Mapping
	// Malformed is called with each line that is not a line of such a log, or whose
	// request is wrong. why is the reason.
	Malformed func(file string, line int64, why error)
}

const (
	// blockSize is the number of bytes of a log that one goroutine parses at a time.
	blockSize = 256 << 10
	// longestLine is the most bytes of a line that is read.
	longestLine = 1 << 20
	// maxKeys bounds the counters of a set of rules.
	maxKeys = 1 << 26
	// lookahead is the number of lines behind a line that say whether its time stands out.
	lookahead = 100
	// maxJump is how far a line may set the clock forward whatever lines follow.
	maxJump = time.Minute
)

// Replay is a replay under way.
type Replay struct {
	options Options
	rules   *side
	against *side
	result  Result
	read    atomic.Int64 // bytes
	now     time.Time
	held    []request // read and not decided
}

// New returns a replay that has read nothing.
func New(o Options) *Replay {
	r := &Replay{options: o, rules: newSide(o.Rules)}
	if o.Against != nil {
		r.result.Against, r.against = &Against{}, newSide(o.Against)
	}
	return r
}

// Bytes returns the number of bytes that were read. It may be called while Log runs.
func (r *Replay) Bytes() int64 { return r.read.Load() }

// block is a run of lines of a log, and the requests that they describe.
type block struct {
	lines    [][]byte
	requests []request
	parsed   chan struct{}
	err      error // of the log after these lines
}

// Log decides the requests of a log, and adds them to the result; the last ones are decided
// with the next log, or by Result. Its error is that of reading the log.
func (r *Replay) Log(name string, log io.Reader) error {
	blocks := make(chan *block, 2*runtime.GOMAXPROCS(0)) // also bounds the parsers
	go r.split(name, log, blocks)
	for b := range blocks {
		<-b.parsed
		r.held = append(r.held, b.requests...)
		r.decide(lookahead)
		if b.err != nil {
			return fmt.Errorf("%s: %w", name, b.err)
		}
	}
	return nil
}

// split reads the log in blocks, each of which a goroutine of its own parses.
func (r *Replay) split(name string, log io.Reader, blocks chan<- *block) {
	defer close(blocks)
	in := bufio.NewReaderSize(log, longestLine)
	if head, _ := in.Peek(len(byteOrderMark)); string(head) == byteOrderMark {
		n, _ := in.Discard(len(head))
		r.read.Add(int64(n))
	}
	first := int64(1)
	for ended := false; !ended; {
		b := &block{parsed: make(chan struct{})}
		text := make([]byte, 0, blockSize+blockSize/8)
		for len(text) < blockSize && !ended {
			line, err := r.line(in)
			if ended = err != nil; ended && !errors.Is(err, io.EOF) {
				b.err = err
			} else if len(line) > 0 {
				start := len(text)
				text = append(text, line...)
				b.lines = append(b.lines, text[start:])
			}
		}
		go b.parse(&r.options.Mapping, name, first)
		blocks <- b
		first += int64(len(b.lines))
	}
}

// line reads a line, which is valid until the next one is read. For a line of more than
// longestLine bytes it returns tooLong.
func (r *Replay) line(in *bufio.Reader) ([]byte, error) {
	for long := false; ; long = true {
		line, err := in.ReadSlice('\n')
		r.read.Add(int64(len(line)))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if long {
			line = tooLong
		}
		return line, err
	}
}

// byteOrderMark is the first character of some files in UTF-8, and no part of their text.
const byteOrderMark = "\ufeff"

// tooLong stands for a line of more than longestLine bytes. It is no JSON object.
var tooLong = []byte("too long\n")

// parse makes the requests of the lines. first is the number of the first line in the file.
func (b *block) parse(m *Mapping, file string, first int64) {
	b.requests = make([]request, len(b.lines))
	for i, line := range b.lines {
		q := &b.requests[i]
		if line = bytes.TrimSpace(line); len(line) > 0 {
			*q = m.read(line)
		} else {
			q.err = errEmpty
		}
		q.file, q.line = file, first+int64(i)
	}
	close(b.parsed)
}

var errEmpty = errors.New("an empty line")

// decide decides the lines that are held, and leaves so many of them.
func (r *Replay) decide(leave int) {
	n := max(0, len(r.held)-leave)
	for i := range n {
		q := &r.held[i]
		if errors.Is(q.err, errEmpty) {
			continue
		}
		r.result.Lines++
		if q.err == nil && len(q.ask.Descriptors) > 0 {
			q.err = r.request(q, r.held[i+1:])
		}
		if q.err != nil {
			r.result.Malformed++
			r.options.Malformed(q.file, q.line, q.err)
		}
	}
	r.held = append(r.held[:0], r.held[n:]...)
}

// standsOut reports whether the time of a line is more than maxJump ahead of nine in ten of
// the lines behind it, as that of a device with a wrong clock. It looks at lookahead lines
// of the same log, or of the next one if no line of the same log follows.
func (q *request) standsOut(behind []request) bool {
	all, near := 0, 0
	for i := range behind {
		b := &behind[i]
		if all == lookahead || all > 0 && b.file != q.file {
			break
		}
		if b.timed() {
			all++
			if !b.at.Before(q.at.Add(-maxJump)) {
				near++
			}
		}
	}
	return 10*near < all
}

func (q *request) timed() bool { return q.err == nil && !q.at.IsZero() }

// clock is the time at which a request is decided: the time of its line, unless the clock is
// past it, or the time stands out.
func (r *Replay) clock(q *request, behind []request) time.Time {
	at := q.at.UTC()
	switch {
	case at.Before(r.now):
		r.result.Back.add(r.now.Sub(at))
		return r.now
	case !at.After(r.now.Add(maxJump)) || !q.standsOut(behind):
		return at
	case r.now.IsZero(): // of the first line: the oldest time behind it
		r.now = at
		for i := range behind {
			if b := &behind[i]; b.timed() && b.at.Before(r.now) {
				r.now = b.at.UTC()
			}
		}
	}
	r.result.Ahead.add(at.Sub(r.now))
	return r.now
}

// request decides a request by both sets of rules. The error says why it is wrong.
func (r *Replay) request(q *request, behind []request) error {
	at := r.clock(q, behind)
	hour := at.Truncate(time.Hour)
	here, err := r.rules.decide(q, at, hour)
	if err != nil {
		return err
	}
	defer here.Release()
	if r.against != nil {
		there, err := r.against.decide(q, at, hour)
		if err != nil {
			return err
		}
		defer there.Release()
		switch {
		case there.Over && !here.Over:
			r.result.Against.NewlyDenied++
			r.against.newlyDenied(q, there)
		case here.Over && !there.Over:
			r.result.Against.NewlyAllowed++
		}
	}
	if r.result.Requests == 0 {
		r.result.From = &at
	}
	r.result.Requests++
	r.now = at
	return nil
}

// Result decides the last lines and returns the result of all logs. Call it once, after the
// last log.
func (r *Replay) Result() *Result {
	r.decide(0)
	out := &r.result
	if out.Requests > 0 {
		out.To = &r.now
	}
	out.Rules, out.Denied = r.rules.finish(), r.rules.denied
	if r.against != nil {
		out.Against.Rules, out.Against.Denied = r.against.finish(), r.against.denied
		out.Against.NewlyDeniedTop = r.against.newlyDeniedMost()
	}
	return out
}

// Evicted is the number of counters that were lost because there were too many, so that
// later decisions may be too mild.
func (r *Replay) Evicted() uint64 {
	n := r.rules.engine.Evicted()
	if r.against != nil {
		n += r.against.engine.Evicted()
	}
	return n
}
