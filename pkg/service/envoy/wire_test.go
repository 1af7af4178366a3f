package envoy

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// FuzzWire compares the ways to read a request: the service's own reader, protobuf's, and the one
// that takes strings with any bytes. They accept the same bytes, but for such strings, and read the
// same request from them.
func FuzzWire(f *testing.F) {
	for _, data := range requestsOnTheWire(f) {
		f.Add(data)
		f.Add(data[:len(data)-1])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var message, any pb.RateLimitRequest
		wrong := readAnyText(data, any.ProtoReflect())
		if err := proto.Unmarshal(data, &message); err == nil && (wrong != nil || !proto.Equal(&message, &any)) {
			t.Fatalf("%v: read by reflection %v, by protobuf %v", wrong, &any, &message)
		} else if err != nil && wrong == nil && !strings.Contains(err.Error(), "UTF-8") {
			t.Fatalf("protobuf's error is %v", err)
		}
		r := newRequest(new(service.Caps))
		defer r.release()
		own := slices.Clone(data)
		err := r.UnmarshalBinary(own)
		if (err != nil) != (wrong != nil) {
			t.Fatalf("got the error %v, want %v", err, wrong)
		}
		if err != nil {
			return
		}
		clear(own) // r keeps no part of it
		want := newRequest(new(service.Caps))
		defer want.release()
		want.take(&any)
		if diff := cmp.Diff(&want.Request, &r.Request, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("protobuf reads otherwise:\n%s", diff)
		}
	})
}

// requestsOnTheWire returns requests with every field, and bytes that protobuf reads
// in a particular way.
func requestsOnTheWire(t testing.TB) (all [][]byte) {
	whole, err := proto.Marshal(&pb.RateLimitRequest{
		Domain: "d", HitsAddend: 3,
		Descriptors: []*rlcommon.RateLimitDescriptor{
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "a", Value: "ä"}, {Key: "b"}, {}}, HitsAddend: wrapperspb.UInt64(0)},
			{Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "c", Value: strings.Repeat("v", 300)}}, IsNegativeHits: true},
			{Limit: &rlcommon.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(2)}},
			{Limit: &rlcommon.RateLimitDescriptor_RateLimitOverride{}, HitsAddend: wrapperspb.UInt64(1 << 60)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	inDescriptor := func(fields string) []byte { return protowire.AppendString([]byte{0x12}, fields) }
	return append(all, whole,
		[]byte("\x0a\x01a\x0a\x01b"),                                         // the domain twice: the last one counts
		[]byte("\x0a\x01\xff"),                                               // a domain that is not UTF-8
		inDescriptor("\x0a\x03\x0a\x01\xff"),                                 // a key that is not UTF-8
		inDescriptor("\x0a\x03\x12\x01\xff"),                                 // a value that is not UTF-8
		inDescriptor("\x12\x02\x08\x05\x12\x02\x10\x03"),                     // two overrides are merged
		inDescriptor("\x12\x04\x1a\x02\x08\x07\x12\x02\x1a\x00"),             // and their multipliers, too
		inDescriptor("\x1a\x02\x08\x07\x1a\x00"),                             // hits twice, the second without a value
		inDescriptor("\x12\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), // a negative unit
		inDescriptor("\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),         // true in ten bytes
		inDescriptor("\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"),         // more than 64 bits
		[]byte("\x18\xff\xff\xff\xff\xff\x01"),                               // hits_addend beyond 32 bits
		[]byte("\x08\x01\x12\x00"),                                           // the domain as a number: an unknown field
		[]byte("\x9a\x00\x01x"),                                              // a tag in more bytes than it needs
		[]byte("\x25abcd\x21abcdefgh\x2a\x01x"),                              // unknown fields of each size
		[]byte("\x23\x0a\x01x\x24"),                                          // an unknown group
		[]byte("\x23\x2c"),                                                   // a group that ends as another
		[]byte("\x24"), []byte("\x0c"),                                       // the end of a group that did not begin
		[]byte("\x00\x00"),                 // field 0
		[]byte("\x80\x80\x80\x80\x10\x00"), // the first number that no field may have
		[]byte("\xf8\xff\xff\xff\x0f\x00"), // the last number that a field may have
		[]byte("\x0f"), []byte("\x0e"),     // wire types that do not exist
	)
}

// TestReplyAsProtobufWritesIt: a reply has the bytes that protobuf writes.
func TestReplyAsProtobufWritesIt(t *testing.T) {
	name := strings.Repeat("n", 200) // so that lengths take two bytes
	limit, err := algorithms.New(algorithms.Spec{Requests: 300, Window: 200 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	o := &service.Outcome{Over: true, Statuses: []service.Status{
		{},
		{Undecided: errors.New("no answer")},
		{Unlimited: true, Remaining: math.MaxUint32},
		{
			Shown: &service.Verdict{
				Limit: &descriptors.Limit{Limit: limit, Name: name, Unit: descriptors.Hour, Multiplier: 200},
				Is:    algorithms.Decision{Allowed: true, Reset: time.Hour - time.Nanosecond},
			},
			Remaining: math.MaxUint32,
		},
		{
			Shown: &service.Verdict{
				Limit: &descriptors.Limit{Limit: limit, Unit: descriptors.Hour, Multiplier: 1},
				Is:    algorithms.Decision{RetryAfter: time.Minute},
			},
			Denied: true,
		},
	}}
	want, err := proto.Marshal(&pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OVER_LIMIT,
		Statuses: []*pb.RateLimitResponse_DescriptorStatus{
			{Code: pb.RateLimitResponse_OK},
			{},
			{Code: pb.RateLimitResponse_OK, LimitRemaining: math.MaxUint32},
			{
				Code: pb.RateLimitResponse_OK, LimitRemaining: math.MaxUint32, DurationUntilReset: durationpb.New(time.Hour),
				CurrentLimit: &pb.RateLimitResponse_RateLimit{
					Name: name, RequestsPerUnit: 300, Unit: pb.RateLimitResponse_RateLimit_HOUR, UnitMultiplier: wrapperspb.UInt32(200),
				},
			},
			{
				Code: pb.RateLimitResponse_OVER_LIMIT, DurationUntilReset: durationpb.New(time.Minute),
				CurrentLimit: &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 300, Unit: pb.RateLimitResponse_RateLimit_HOUR},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := new(Reply).encode(new(service.Request), o); !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// BenchmarkWire compares the service's own reading and writing with protobuf's, for a
// request of four descriptors and its reply.
func BenchmarkWire(b *testing.B) {
	asked := &pb.RateLimitRequest{Domain: "bench"}
	o := &service.Outcome{Statuses: make([]service.Status, 4)}
	limit, err := algorithms.New(algorithms.Spec{Requests: 100, Window: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	for i := range o.Statuses {
		asked.Descriptors = append(asked.Descriptors, &rlcommon.RateLimitDescriptor{
			Entries: []*rlcommon.RateLimitDescriptor_Entry{{Key: "user", Value: strconv.Itoa(1000 + i)}},
		})
		o.Statuses[i] = service.Status{
			Shown: &service.Verdict{
				Limit: &descriptors.Limit{Limit: limit, Unit: descriptors.Hour, Multiplier: 1},
				Is:    algorithms.Decision{Allowed: true, Remaining: 50, Reset: time.Hour},
			},
			Remaining: 50,
		}
	}
	data, err := proto.Marshal(asked)
	if err != nil {
		b.Fatal(err)
	}
	caps := new(service.Caps)
	write := func() []byte { return new(Reply).encode(new(service.Request), o) }
	reply := new(pb.RateLimitResponse)
	if err := proto.Unmarshal(write(), reply); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"read/own", func() error {
			r := newRequest(caps)
			defer r.release()
			return r.UnmarshalBinary(data)
		}},
		{"read/protobuf", func() error { return proto.Unmarshal(data, new(pb.RateLimitRequest)) }},
		{"write/own", func() error { write(); return nil }},
		{"write/protobuf", func() error { // without the making of reply
			_, err := proto.Marshal(reply)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
