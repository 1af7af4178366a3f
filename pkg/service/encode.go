package service

import (
	"math"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// The functions below each append the fields of one message of
// envoy/service/ratelimit/v3/rls.proto, in the order of their numbers.

// encode returns the reply, an envoy.service.ratelimit.v3.RateLimitResponse. It is
// the only place that writes Envoy's replies.
func (d *decision) encode() []byte {
	const usual = 26 // bytes of a status; a longer reply grows
	b := make([]byte, 0, usual*(1+len(d.outcomes)))
	code := pb.RateLimitResponse_OK
	if d.over {
		code = pb.RateLimitResponse_OVER_LIMIT
	}
	b = appendUint(b, 1, uint64(code))
	for i := range d.outcomes {
		var start int
		b, start = begin(b, 2)
		b = end(d.outcomes[i].append(b), start)
	}
	if cfg := &d.service.cfg.Reply; *cfg != (Reply{}) {
		e := cfg.extras(d)
		b = appendHeaders(b, 3, e.response)
		b = appendHeaders(b, 4, e.upstream)
		b = appendString(b, 5, e.body)
		if e.metadata != nil {
			b = appendStruct(b, 6, e.metadata)
		}
	}
	return b
}

// append appends the status of the descriptor.
func (o *outcome) append(b []byte) []byte {
	switch {
	case o.open():
		return appendUint(b, 1, uint64(pb.RateLimitResponse_UNKNOWN))
	case o.denied && !o.shadow():
		b = appendUint(b, 1, uint64(pb.RateLimitResponse_OVER_LIMIT))
	default:
		b = appendUint(b, 1, uint64(pb.RateLimitResponse_OK))
	}
	if o.unlimited() {
		return appendUint(b, 3, math.MaxUint32)
	}
	if o.shows == nil || o.shadow() && o.is.Remaining <= 0 {
		// The status has no limit: from it Envoy would tell its clients that
		// nothing remains, although the limit is not enforced.
		return b
	}
	b, start := begin(b, 2)
	b = appendUint(b, 1, uint64(o.shows.Requests))
	b = appendUint(b, 2, uint64(o.shows.Unit))
	b = appendString(b, 3, o.shows.Name)
	if o.shows.Multiplier > 1 {
		var multiplier int
		b, multiplier = begin(b, 4)
		b = end(appendUint(b, 1, uint64(o.shows.Multiplier)), multiplier)
	}
	b = end(b, start)
	b = appendUint(b, 3, uint64(min(o.remaining(), math.MaxUint32)))
	b, start = begin(b, 4)
	return end(appendUint(b, 1, uint64(o.resetSeconds())), start)
}

func appendHeaders(b []byte, number protowire.Number, list []header) []byte {
	for _, h := range list {
		var start int
		b, start = begin(b, number)
		b = end(appendString(appendString(b, 1, h.name), 2, h.value), start)
	}
	return b
}

func appendStruct(b []byte, number protowire.Number, fields map[string]any) []byte {
	// Both functions fail only for strings that are not UTF-8, and strings of a
	// protobuf message are UTF-8.
	message, err := structpb.NewStruct(fields)
	if err != nil {
		return b
	}
	b, start := begin(b, number)
	b, _ = proto.MarshalOptions{}.MarshalAppend(b, message)
	return end(b, start)
}
