package envoy

import (
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// The functions below each append the fields of one message of
// envoy/service/ratelimit/v3/rls.proto, in the order of their numbers.

// encode returns an envoy.service.ratelimit.v3.RateLimitResponse: the outcome o of
// the request q, with the headers, the body and the metadata that r chooses.
func (r *Reply) encode(q *service.Request, o *service.Outcome) []byte {
	const usual = 26 // bytes of a status; a longer reply grows
	b := make([]byte, 0, usual*(1+len(o.Statuses)))
	b = appendUint(b, 1, uint64(codeOf(o.Over)))
	for i := range o.Statuses {
		b = appendMessage(b, 2, func(b []byte) []byte { return appendStatus(b, &o.Statuses[i]) })
	}
	for _, charges := range q.Charges {
		b = appendMessage(b, 2, func(b []byte) []byte { return appendUint(b, 1, uint64(codeOf(charges && o.Beyond))) })
	}
	if *r != (Reply{}) || o.Reached || o.Beyond {
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

func codeOf(denied bool) pb.RateLimitResponse_Code {
	if denied {
		return pb.RateLimitResponse_OVER_LIMIT
	}
	return pb.RateLimitResponse_OK
}

func appendStatus(b []byte, s *service.Status) []byte {
	if s.Undecided != nil { // without a limit, so that Envoy shows none
		return appendUint(b, 1, uint64(pb.RateLimitResponse_UNKNOWN))
	}
	b = appendUint(b, 1, uint64(codeOf(s.Denied)))
	if s.Shown != nil {
		b = appendMessage(b, 2, func(b []byte) []byte { return appendLimit(b, s.Shown.Limit) })
	}
	b = appendUint(b, 3, uint64(min(s.Remaining, math.MaxUint32)))
	if s.Shown != nil {
		b = appendMessage(b, 4, func(b []byte) []byte { return appendUint(b, 1, uint64(seconds(s.Shown))) })
	}
	return b
}

func appendLimit(b []byte, l *descriptors.Limit) []byte {
	b = appendUint(b, 1, uint64(l.Requests))
	b = appendUint(b, 2, uint64(l.Unit))
	b = appendString(b, 3, descriptors.Printable(l.Name))
	if l.Multiplier > 1 {
		b = appendMessage(b, 4, func(b []byte) []byte { return appendUint(b, 1, uint64(l.Multiplier)) })
	}
	return b
}

// seconds is the wait of v in whole seconds, rounded up because Envoy truncates,
// and at least 1.
func seconds(v *service.Verdict) int64 {
	return max(1, int64((v.Wait()+time.Second-1)/time.Second))
}

func appendHeaders(b []byte, number protowire.Number, list []descriptors.Header) []byte {
	for _, h := range list {
		b = appendMessage(b, number, func(b []byte) []byte {
			return appendString(appendString(b, 1, h.Name), 2, h.Value)
		})
	}
	return b
}

func appendStruct(b []byte, number protowire.Number, fields map[string]any) []byte {
	// Both functions fail only for strings that are not UTF-8. Texts of requests are made
	// printable, as are names of limits and paths of rules, and metadata of rules is UTF-8.
	message, err := structpb.NewStruct(fields)
	if err != nil {
		return b
	}
	return appendMessage(b, number, func(b []byte) []byte {
		b, _ = proto.MarshalOptions{}.MarshalAppend(b, message)
		return b
	})
}
