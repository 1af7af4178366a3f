package envoy

import (
	"fmt"
	"sync"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// request is a request that is read, with the memory of its parts.
type request struct {
	service.Request
	entries []descriptors.Entry // of all descriptors, one after the other
	hits    []uint64
	limits  []service.Override
	caps    *service.Caps
}

// requests holds empty requests for reuse.
var requests = sync.Pool{New: func() any { return new(request) }}

// newRequest returns an empty request for a reader that is bounded by the caps. Its caller releases it.
func newRequest(caps *service.Caps) *request {
	r := requests.Get().(*request)
	r.caps = caps
	return r
}

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
// which must be empty. Of data it keeps one copy, which all strings of r share. Of a request beyond
// the caps it keeps [service.Request.Charges] in the place of the descriptors, one byte for each.
//
// The methods below that read parts of a request each have the fields of one
// message of envoy/service/ratelimit/v3/rls.proto or
// envoy/extensions/common/ratelimit/v3/ratelimit.proto. As protobuf demands, they
// pass over fields that they do not know, and merge a message that comes twice.
func (r *request) UnmarshalBinary(data []byte) error {
	r.weigh(len(data))
	return message{data, string(data)}.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isBytes:
			r.Domain = f.part.text
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
			err = r.readEntry(f.part, first)
		case 2<<3 | isBytes:
			if d.Limit == nil {
				d.Limit = place(r, &r.limits)
			}
			err = readLimit(f.part, d.Limit, &multiplied)
		case 3<<3 | isBytes:
			if d.Hits == nil {
				d.Hits = place(r, &r.hits)
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
	r.add(d, first)
	return nil
}

func (r *request) readEntry(m message, first int) error {
	var e descriptors.Entry
	err := m.each(func(f field) error {
		switch f.tag {
		case 1<<3 | isBytes:
			e.Key = f.part.text
		case 2<<3 | isBytes:
			e.Value = f.part.text
		}
		return nil
	})
	r.addEntry(e, first)
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

// take makes r, which must be empty, the request of m, as UnmarshalBinary does of its bytes.
func (r *request) take(m *pb.RateLimitRequest) {
	r.Domain, r.Hits = m.GetDomain(), m.GetHitsAddend()
	r.weigh(proto.Size(m))
	for _, from := range m.GetDescriptors() {
		d := service.Descriptor{Refund: from.GetIsNegativeHits()}
		first := len(r.entries)
		for _, e := range from.GetEntries() {
			r.addEntry(descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()}, first)
		}
		if l := from.GetLimit(); l != nil {
			d.Limit = place(r, &r.limits)
			*d.Limit = service.Override{RequestsPerUnit: l.GetRequestsPerUnit(), Unit: descriptors.Unit(l.GetUnit()), Multiplier: 1}
			if m := l.GetUnitMultiplier(); m != nil {
				d.Limit.Multiplier = m.GetValue()
			}
		}
		if hits := from.GetHitsAddend(); hits != nil {
			d.Hits = place(r, &r.hits)
			*d.Hits = hits.GetValue()
		}
		r.add(d, first)
	}
}

// place returns the place of a new value in memory that r uses again. A request beyond the caps does not
// keep its values, so they take none of that memory.
func place[T any](r *request, memory *[]T) *T {
	if r.Beyond != "" {
		return new(T)
	}
	*memory = append(*memory, *new(T))
	return &(*memory)[len(*memory)-1]
}

// weigh compares the size of the request on the wire, in bytes, with the caps.
func (r *request) weigh(bytes int) {
	if most := r.caps.Bytes; most > 0 && bytes > most {
		r.exceed(fmt.Sprintf("the request has %d bytes; at most %d are decided (REQUEST_MAX_BYTES)", bytes, most))
	}
}

// addEntry appends an entry of a descriptor whose entries begin at first.
func (r *request) addEntry(e descriptors.Entry, first int) {
	if most := r.caps.Entries; most > 0 && len(r.entries)-first == most {
		r.exceed(fmt.Sprintf("a descriptor has more than %d entries (REQUEST_MAX_ENTRIES)", most))
	}
	if r.Beyond == "" {
		r.entries = append(r.entries, e)
	}
}

// add appends a descriptor whose entries begin at first.
func (r *request) add(d service.Descriptor, first int) {
	if most := r.caps.Descriptors; most > 0 && len(r.Descriptors) == most {
		r.exceed(fmt.Sprintf("the request has more than %d descriptors (REQUEST_MAX_DESCRIPTORS)", most))
	}
	if r.Beyond != "" {
		r.Charges = append(r.Charges, !d.Refund)
		return
	}
	d.Entries = r.entries[first:]
	r.Descriptors = append(r.Descriptors, d)
}

// exceed makes r a request beyond a cap, for the reason that it is told first.
func (r *request) exceed(reason string) {
	if r.Beyond != "" {
		return
	}
	r.Beyond = reason
	for i := range r.Descriptors {
		r.Charges = append(r.Charges, !r.Descriptors[i].Refund)
	}
	clear(r.Descriptors)
	r.Descriptors, r.entries = r.Descriptors[:0], nil
}
