package service

import (
	"context"
	"encoding"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	grpcencoding "google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Decider decides requests. [Service] is one, and so is a decorator of it. It is
// called by many goroutines at once and must not keep the request.
type Decider interface {
	Decide(context.Context, *Request) (Answer, error)
}

// Answer is the reply to a request.
type Answer struct {
	Over    bool   // the request is denied
	Message []byte // an envoy.service.ratelimit.v3.RateLimitResponse
}

// Server serves a Decider as Envoy's RateLimitService.
type Server struct {
	pb.UnimplementedRateLimitServiceServer
	Decider
}

// ShouldRateLimit decides a request of a caller in this process.
func (s Server) ShouldRateLimit(ctx context.Context, message *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	r := requests.Get().(*Request)
	defer r.release()
	data, err := proto.Marshal(message)
	if err == nil {
		err = r.UnmarshalBinary(data)
	}
	if err != nil {
		return nil, invalid("%v", err)
	}
	answer, err := s.Decide(ctx, r)
	if err != nil {
		return nil, err
	}
	reply := new(pb.RateLimitResponse)
	return reply, proto.Unmarshal(answer.Message, reply)
}

// Register registers the service. Its messages need [Codec]. They go between the
// wire and the Decider without the structs of protobuf, which would cost about a
// tenth of a decision in memory.
func (s Server) Register(to grpc.ServiceRegistrar) {
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: pb.RateLimitService_ShouldRateLimit_FullMethodName}
	decide := func(ctx context.Context, r any) (any, error) {
		answer, err := s.Decide(ctx, r.(*Request))
		if err != nil {
			return nil, err
		}
		return mem.SliceBuffer(answer.Message), nil
	}
	desc := pb.RateLimitService_ServiceDesc
	desc.Methods = []grpc.MethodDesc{{
		MethodName: "ShouldRateLimit",
		Handler: func(_ any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			r := requests.Get().(*Request)
			defer r.release()
			if err := read(r); err != nil {
				return nil, err
			}
			if intercept == nil {
				return decide(ctx, r)
			}
			return intercept(ctx, r, info, decide)
		},
	}}
	to.RegisterService(&desc, s)
}

// Codec returns the codec of a gRPC server with this service: requests that
// implement [encoding.BinaryUnmarshaler] read themselves, replies that are a
// [mem.Buffer] are sent as they are, and all other messages are protobuf's.
func Codec() grpcencoding.CodecV2 { return codec{grpcencoding.GetCodecV2("proto")} }

type codec struct{ grpcencoding.CodecV2 }

// Marshal implements [grpcencoding.CodecV2].
func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if ready, ok := message.(mem.Buffer); ok {
		return mem.BufferSlice{ready}, nil
	}
	return c.CodecV2.Marshal(message)
}

// Unmarshal implements [grpcencoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	reader, ok := message.(encoding.BinaryUnmarshaler)
	if !ok {
		return c.CodecV2.Unmarshal(data, message)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return reader.UnmarshalBinary(whole.ReadOnlyData())
}
