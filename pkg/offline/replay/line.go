package replay

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// request is a line of a log, read.
type request struct {
	ask service.Request // without descriptors if the line lacks fields for all of them
	at  time.Time
	err error // the line is malformed

	file string
	line int64
}

// read makes a request of a line.
func (m *Mapping) read(line []byte) (r request) {
	if !gjson.ValidBytes(line) || line[0] != '{' {
		return request{err: errNoJSON}
	}
	if kind := gjson.GetBytes(line, "@message"); kind.Type == gjson.String {
		if kind.Str == "decision" {
			return readOwn(line)
		}
		if len(m.Descriptors) == 0 { // another line of our own log
			return request{}
		}
	}
	if len(m.Descriptors) == 0 {
		return request{err: errNoMapping}
	}
	if r.at, r.err = m.time(line); r.err != nil {
		return r
	}
	hits, err := m.hits(line)
	if err != nil {
		return request{err: err}
	}
	r.ask.Domain = m.Domain
	for i := range m.Descriptors {
		if d, ok := m.Descriptors[i].of(line); ok {
			d.Hits = &hits
			r.ask.Descriptors = append(r.ask.Descriptors, d)
		}
	}
	return r
}

func (m *Mapping) time(line []byte) (time.Time, error) {
	text, ok := m.Time.value(line)
	if !ok {
		return time.Time{}, fmt.Errorf("no field %s with the time", m.Time.parts[0].field)
	}
	at, err := parseTime(text)
	if err != nil {
		return at, fmt.Errorf("the field %s has no time: want RFC 3339 or seconds since 1970", m.Time.parts[0].field)
	}
	return at, nil
}

// parseTime reads RFC 3339, or seconds since 1970.
func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err == nil {
		return at, nil
	}
	seconds, numberErr := strconv.ParseFloat(text, 64)
	if numberErr != nil || !(math.Abs(seconds) < 1<<33) {
		return at, err
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(part*1e6))*1000).UTC(), nil
}

// hits is the cost of a line: 1 if the line does not tell.
func (m *Mapping) hits(line []byte) (uint64, error) {
	if m.Hits == nil {
		return 1, nil
	}
	text, ok := m.Hits.value(line)
	if !ok {
		return 1, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > math.MaxUint32 || n != math.Trunc(n) {
		return 0, fmt.Errorf("the hits are %q: want a whole number from 0 to %d", text, uint32(math.MaxUint32))
	}
	return uint64(n), nil
}

// readOwn reads a line of this program's decision log.
func readOwn(line []byte) (r request) {
	var domain, entries, hits, at gjson.Result
	gjson.ParseBytes(line).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "domain":
			domain = value
		case "entries":
			entries = value
		case "hits":
			hits = value
		case "@timestamp":
			at = value
		}
		return true
	})
	if !entries.IsArray() {
		return request{}
	}
	var err error
	if r.at, err = time.Parse(time.RFC3339Nano, at.Str); err != nil {
		return request{err: fmt.Errorf("the field @timestamp has no time: want RFC 3339")}
	}
	n := hits.Uint()
	d := service.Descriptor{Hits: &n}
	entries.ForEach(func(_, entry gjson.Result) bool {
		d.Entries = append(d.Entries, descriptors.Entry{Key: entry.Get("key").String(), Value: entry.Get("value").String()})
		return true
	})
	r.ask = service.Request{Domain: domain.String(), Descriptors: []service.Descriptor{d}}
	return r
}
