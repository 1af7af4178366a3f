package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// A Template is text with fields of a log line, as %field% or %object.field%; %% is a percent sign.
type Template struct{ parts []part }

// part is a text or a field.
type part struct {
	text  string
	path  string // of gjson; "" is a text
	field string
}

// address is the field of Envoy's access log with an address and a port, which is cut off.
const address = "downstream_remote_address"

// ParseTemplate reads a template.
func ParseTemplate(text string) (Template, error) {
	var t Template
	for i, piece := range strings.Split(text, "%") {
		switch {
		case i%2 == 0:
			t.parts = append(t.parts, part{text: piece})
		case piece == "":
			t.parts = append(t.parts, part{text: "%"})
		default:
			var path []string
			for name := range strings.SplitSeq(piece, ".") {
				if name == "" {
					return Template{}, fmt.Errorf("the field %%%s%% has an empty name", piece)
				}
				path = append(path, gjson.Escape(name))
			}
			t.parts = append(t.parts, part{path: strings.Join(path, "."), field: piece})
		}
	}
	t.parts = slices.DeleteFunc(t.parts, func(p part) bool { return p == part{} })
	if strings.Count(text, "%")%2 == 1 {
		return Template{}, fmt.Errorf("%q has a percent sign without a partner: want %%field%%, or %%%% for a percent sign", text)
	}
	return t, nil
}

// ParseHits reads the template of a cost: one that has a field, or a whole number.
func ParseHits(text string) (Template, error) {
	t, err := ParseTemplate(text)
	named := slices.ContainsFunc(t.parts, func(p part) bool { return p.path != "" })
	if _, noNumber := strconv.ParseUint(text, 10, 32); err == nil && !named && noNumber != nil {
		err = fmt.Errorf("%q names no field: want %%field%%, or a whole number from 0 to %d", text, uint32(math.MaxUint32))
	}
	return t, err
}

// ParseField reads the name of a field, with or without percent signs.
func ParseField(text string) (Template, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(text, "%"), "%")
	if name == "" || strings.Contains(name, "%") {
		return Template{}, fmt.Errorf("%q is no field: want the name of one, such as start_time or request.time", text)
	}
	return ParseTemplate("%" + name + "%")
}

// value is the text that the template makes of a line, false if a field is missing, null or "-".
func (t *Template) value(line []byte) (string, bool) {
	if len(t.parts) == 1 {
		return t.parts[0].value(line)
	}
	var b strings.Builder
	for i := range t.parts {
		text, ok := t.parts[i].value(line)
		if !ok {
			return "", false
		}
		b.WriteString(text)
	}
	return b.String(), true
}

func (p *part) value(line []byte) (string, bool) {
	if p.path == "" {
		return p.text, true
	}
	found := gjson.GetBytes(line, p.path)
	text := found.String()
	if found.Type == gjson.Number {
		text = found.Raw // as written
	}
	if !found.Exists() || found.Type == gjson.Null || text == "-" {
		return "", false
	}
	if p.field == address {
		if both, err := netip.ParseAddrPort(text); err == nil {
			text = both.Addr().String()
		}
	}
	return text, true
}

// A Descriptor makes the entries of a descriptor of a line.
type Descriptor []struct {
	key   string
	value Template
}

// ParseDescriptor reads a descriptor as [ask.ParseDescriptor] does. Its values are templates.
func ParseDescriptor(text string) (Descriptor, error) {
	entries, err := ask.ParseDescriptor(text)
	d := make(Descriptor, len(entries))
	for i, e := range entries {
		d[i].key = e.Key
		if d[i].value, err = ParseTemplate(e.Value); err != nil {
			return nil, fmt.Errorf("descriptor %s: %w", text, err)
		}
	}
	return d, err
}

// of is the descriptor of a line, false if a field of it is missing.
func (d Descriptor) of(line []byte) (service.Descriptor, bool) {
	entries := make([]descriptors.Entry, len(d))
	for i := range d {
		value, ok := d[i].value.value(line)
		if !ok {
			return service.Descriptor{}, false
		}
		entries[i] = descriptors.Entry{Key: d[i].key, Value: value}
	}
	return service.Descriptor{Entries: entries}, true
}

// Mapping makes requests of the lines of a log.
type Mapping struct {
	Domain string
	// Descriptors go into one request for each line. Without any, only decision logs of
	// this program can be read.
	Descriptors []Descriptor
	Hits        Template // without parts it is 1
	Time        Template // a field with the time of the request
}

var (
	errNoJSON    = errors.New("not a JSON object")
	errNoMapping = errors.New("not a decision of rls with entries (LOG_DECISIONS_ENTRIES=true), and no --descriptor says which fields of the line to take")
)

// request is a line of a log, read.
type request struct {
	ask service.Request // without descriptors if the line lacks fields for all of them
	at  time.Time
	err error // the line is malformed

	file string
	line int64
}

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

// time is the time of a line: RFC 3339, or seconds since 1970.
func (m *Mapping) time(line []byte) (time.Time, error) {
	text, ok := m.Time.value(line)
	if !ok {
		return time.Time{}, fmt.Errorf("no field %s with the time", m.Time.parts[0].field)
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(math.Abs(seconds) < 1<<33) {
		return time.Time{}, fmt.Errorf("the field %s has no time: want RFC 3339 or seconds since 1970", m.Time.parts[0].field)
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(math.Round(part*1e6))*1000).UTC(), nil
}

// hits is the cost of a line: 1 if the line does not tell.
func (m *Mapping) hits(line []byte) (uint64, error) {
	text, ok := m.Hits.value(line)
	if len(m.Hits.parts) == 0 || !ok {
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
	all := gjson.GetManyBytes(line, "domain", "entries", "hits", "@timestamp")
	domain, entries, hits, at := all[0], all[1], all[2], all[3]
	if !entries.IsArray() {
		return request{}
	}
	var err error
	if r.at, err = time.Parse(time.RFC3339Nano, at.Str); err != nil {
		return request{err: fmt.Errorf("the field @timestamp has no time: want RFC 3339")}
	}
	n := hits.Uint()
	d := service.Descriptor{Hits: &n}
	if err = json.Unmarshal([]byte(entries.Raw), &d.Entries); err != nil {
		r.err = fmt.Errorf("the field entries is wrong: %w", err)
	}
	r.ask = service.Request{Domain: domain.String(), Descriptors: []service.Descriptor{d}}
	return r
}
