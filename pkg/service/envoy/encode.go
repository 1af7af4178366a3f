package envoy

import (
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/pkg/service"
)

// The functions below each append the fields of one message of
// envoy/service/ratelimit/v3/rls.proto, in the order of their numbers.

// encode returns an envoy.service.ratelimit.v3.RateLimitResponse: the outcome o of
// the request q, with the headers, the body and the metadata that r chooses.
func (r *Reply) encode(q *service.Request, o *service.Outcome) []byte {
	const usual = 26 // bytes of a status; a longer reply grows
	b := make([]byte, 0, usual*(1+len(o.Statuses)))
	code := pb.RateLimitResponse_OK
	if o.Over {
		code = pb.RateLimitResponse_OVER_LIMIT
	}
	b = appendUint(b, 1, uint64(code))
	for i := range o.Statuses {
		var start int
		b, start = begin(b, 2)
		b = end(appendStatus(b, &o.Statuses[i]), start)
	}
	if *r != (Reply{}) {
		e := r.extras(q, o)
		b = appendHeaders(b, 3, e.response)
		b = appendHeaders(b, 4, e.upstream)
		b = appendString(b, 5, e.body)
		if e.metadata != nil {
			b = appendStruct(b, 6, e.metadata)
		}
	}
	return b
}

func appendStatus(b []byte, s *service.Status) []byte {
	switch {
	case s.Undecided != nil: // without a limit, so that Envoy shows none
		return appendUint(b, 1, uint64(pb.RateLimitResponse_UNKNOWN))
	case s.Denied:
		b = appendUint(b, 1, uint64(pb.RateLimitResponse_OVER_LIMIT))
	default:
		b = appendUint(b, 1, uint64(pb.RateLimitResponse_OK))
	}
	if l := s.Limit; l != nil {
		var start int
		b, start = begin(b, 2)
		b = appendUint(b, 1, uint64(l.Requests))
		b = appendUint(b, 2, uint64(l.Unit))
		b = appendString(b, 3, l.Name)
		if l.Multiplier > 1 {
			var multiplier int
			b, multiplier = begin(b, 4)
			b = end(appendUint(b, 1, uint64(l.Multiplier)), multiplier)
		}
		b = end(b, start)
	}
	b = appendUint(b, 3, uint64(min(s.Remaining, math.MaxUint32)))
	if s.Limit != nil {
		var start int
		b, start = begin(b, 4)
		b = end(appendUint(b, 1, uint64(seconds(s))), start)
	}
	return b
}

// seconds is the status's wait in whole seconds, rounded up because Envoy truncates,
// and at least 1.
func seconds(s *service.Status) int64 {
	return max(1, int64((s.Wait()+time.Second-1)/time.Second))
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
