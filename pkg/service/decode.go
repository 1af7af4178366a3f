package service

import (
	"example.org/rls/pkg/descriptors"
)

// UnmarshalBinary reads an envoy.service.ratelimit.v3.RateLimitRequest into r,
// which must be empty. It is the only place that reads Envoy's requests. Of data it
// keeps one copy, which all strings of r share.
//
// Of three sources for the hits of a descriptor the first one that is present
// counts: the descriptor's own hits_addend (an explicit 0 only checks), the
// request's hits_addend unless it is 0, and 1.
//
// The methods below that read parts of a request each have the fields of one
// message of envoy/service/ratelimit/v3/rls.proto or
// envoy/extensions/common/ratelimit/v3/ratelimit.proto. As protobuf demands, they
// pass over fields that they do not know, and merge a message that comes twice.
func (r *Request) UnmarshalBinary(data []byte) error {
	err := message{data, string(data)}.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isBytes:
			r.domain, err = f.part.string("domain")
		case 2<<3 | isBytes:
			err = r.readDescriptor(f.part)
		case 3<<3 | isVarint:
			r.hitsAddend = uint32(f.value)
		}
		return err
	})
	if err != nil {
		return err
	}
	hits := uint64(max(r.hitsAddend, 1))
	for i := range r.descriptors {
		if d := &r.descriptors[i]; !d.ownHits {
			d.hits = hits
		}
	}
	return nil
}

func (r *Request) readDescriptor(m message) error {
	var d descriptor
	first := len(r.entries)
	err := m.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isBytes:
			err = r.readEntry(f.part)
		case 2<<3 | isBytes:
			d.override.given = true
			err = d.override.read(f.part)
		case 3<<3 | isBytes:
			d.ownHits = true
			err = f.part.wrapped(&d.hits)
		case 4<<3 | isVarint:
			d.refund = f.value != 0
		}
		return err
	})
	if err != nil {
		return err
	}
	if !d.override.ownMultiplier {
		d.override.multiplier = 1
	}
	d.entries = r.entries[first:]
	r.descriptors = append(r.descriptors, d)
	return nil
}

func (r *Request) readEntry(m message) error {
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

func (o *override) read(m message) error {
	return m.each(func(f field) (err error) {
		switch f.tag {
		case 1<<3 | isVarint:
			o.requests = uint32(f.value)
		case 2<<3 | isVarint:
			o.unit = int32(f.value)
		case 3<<3 | isBytes:
			o.ownMultiplier = true
			multiplier := uint64(o.multiplier)
			err = f.part.wrapped(&multiplier)
			o.multiplier = uint32(multiplier)
		}
		return err
	})
}
