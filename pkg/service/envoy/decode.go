package envoy

import (
	"sync"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// request is a request that is read from the wire, with the memory of its parts.
type request struct {
	service.Request
	entries []descriptors.Entry // of all descriptors, one after the other
	hits    []uint64
	limits  []service.Override
	size    int // bytes on the wire
}

// Received is the size of r on the wire, in bytes.
func (r *request) Received() int { return r.size }

// requests holds empty requests for reuse.
var requests = sync.Pool{New: func() any { return new(request) }}

// maxKept is the largest number of descriptors, or of entries of a descriptor, whose
// memory is kept for other requests.
const maxKept = 64

// release empties r, keeps the memory of its slices, and returns r to the pool.
func (r *request) release() {
	if cap(r.Descriptors) > maxKept || cap(r.entries) > maxKept*maxKept {
		return
	}
	clear(r.Descriptors)
	clear(r.entries)
	*r = request{
		Request: service.Request{Descriptors: r.Descriptors[:0]},
		entries: r.entries[:0], hits: r.hits[:0], limits: r.limits[:0],
	}
	requests.Put(r)
}

// UnmarshalBinary reads an envoy.service.ratelimit.v3.RateLimitRequest into r,
// which must be empty. Of data it keeps one copy, which all strings of r share.
//
// The methods below that read parts of a request each have the fields of one
// message of envoy/service/ratelimit/v3/rls.proto or
// envoy/extensions/common/ratelimit/v3/ratelimit.proto. As protobuf demands, they
// pass over fields that they do not know, and merge a message that comes twice.
func (r *request) UnmarshalBinary(data []byte) error {
	r.size = len(data)
	return message{data, string(data)}.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isBytes:
			r.Domain, err = f.part.string("domain")
		case 2<<3 | isBytes:
			err = r.readDescriptor(f.part)
		case 3<<3 | isVarint:
			r.Hits = uint32(f.value)
		}
		return err
	})
}

func (r *request) readDescriptor(m message) error {
	var d service.Descriptor
	first := len(r.entries)
	multiplied := false // the limit has a unit_multiplier
	err := m.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isBytes:
			err = r.readEntry(f.part)
		case 2<<3 | isBytes:
			if d.Limit == nil {
				r.limits = append(r.limits, service.Override{})
				d.Limit = &r.limits[len(r.limits)-1]
			}
			err = readLimit(f.part, d.Limit, &multiplied)
		case 3<<3 | isBytes:
			if d.Hits == nil {
				r.hits = append(r.hits, 0)
				d.Hits = &r.hits[len(r.hits)-1]
			}
			err = f.part.wrapped(d.Hits)
		case 4<<3 | isVarint:
			d.Refund = f.value != 0
		}
		return err
	})
	if err != nil {
		return err
	}
	if d.Limit != nil && !multiplied {
		d.Limit.Multiplier = 1
	}
	d.Entries = r.entries[first:]
	r.Descriptors = append(r.Descriptors, d)
	return nil
}

func (r *request) readEntry(m message) error {
	var e descriptors.Entry
	err := m.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isBytes:
			e.Key, err = f.part.string("key")
		case 2<<3 | isBytes:
			e.Value, err = f.part.string("value")
		}
		return err
	})
	r.entries = append(r.entries, e)
	return err
}

func readLimit(m message, l *service.Override, multiplied *bool) error {
	return m.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isVarint:
			l.RequestsPerUnit = uint32(f.value)
		case 2<<3 | isVarint:
			l.Unit = descriptors.Unit(f.value)
		case 3<<3 | isBytes:
			*multiplied = true
			multiplier := uint64(l.Multiplier)
			err = f.part.wrapped(&multiplier)
			l.Multiplier = uint32(multiplier)
		}
		return err
	})
}
