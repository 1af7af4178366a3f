// Package envoy is Envoy's RateLimitService (v3) on top of package service: it reads
// requests from the wire, writes the outcome into statuses, headers, a body and
// metadata, and gives errors their gRPC status. [Server] is the way in.
//
// It is the only package on the way of a request that knows protobuf. Another protocol
// is another package beside it.
package envoy

import (
	"context"
	"encoding"
	"errors"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	grpcencoding "google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.org/rls/pkg/service"
)

// Server serves a Decider as Envoy's RateLimitService.
type Server struct {
	pb.UnimplementedRateLimitServiceServer
	decider service.Decider
	reply   Reply
	caps    service.Caps
}

// New returns a server of d. Its replies have the headers, the body and the metadata
// that reply chooses. It hands d no more of a request than the caps allow, see
// [service.Request.Beyond].
func New(d service.Decider, reply Reply, caps service.Caps) *Server {
	return &Server{decider: d, reply: reply, caps: caps}
}

// decide returns an envoy.service.ratelimit.v3.RateLimitResponse, or an error with a
// gRPC status.
func (s *Server) decide(ctx context.Context, r *service.Request) ([]byte, error) {
	o, err := s.decider.Decide(ctx, r)
	if err != nil {
		return nil, Error(err)
	}
	defer o.Release()
	return s.reply.encode(r, o), nil
}

// Error returns err, an error of a [service.Service], with its gRPC status. It
// returns nil for nil.
func Error(err error) error {
	var coded *service.Error
	if errors.As(err, &coded) {
		return status.Error(coded.Code, err.Error())
	}
	return status.FromContextError(err).Err()
}

// ShouldRateLimit decides a request of a caller in this process.
func (s *Server) ShouldRateLimit(ctx context.Context, m *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return s.Call(ctx, m, nil)
}

// Call decides m as a request with call, which another service than Envoy's asks; nil is
// ShouldRateLimit.
func (s *Server) Call(ctx context.Context, m *pb.RateLimitRequest, call *service.Call) (*pb.RateLimitResponse, error) {
	r := newRequest(&s.caps)
	defer r.release()
	r.take(m)
	r.Request.Call = call
	message, err := s.decide(ctx, &r.Request)
	if err != nil {
		return nil, err
	}
	reply := new(pb.RateLimitResponse)
	return reply, proto.Unmarshal(message, reply)
}

// Register registers the service. Its messages need [Codec]. They go between the
// wire and the Decider without the structs of protobuf, which would cost about a
// tenth of a decision in memory.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: pb.RateLimitService_ShouldRateLimit_FullMethodName}
	decide := func(ctx context.Context, r any) (any, error) {
		message, err := s.decide(ctx, &r.(*request).Request)
		if err != nil {
			return nil, err
		}
		return mem.SliceBuffer(message), nil
	}
	desc := pb.RateLimitService_ServiceDesc
	desc.Methods = []grpc.MethodDesc{{
		MethodName: "ShouldRateLimit",
		Handler: func(_ any, ctx context.Context, read func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			r := newRequest(&s.caps)
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
// [mem.Buffer] are sent as they are, and all other messages are protobuf's, which [Unmarshal]
// reads.
func Codec() grpcencoding.CodecV2 { return codec{grpcencoding.GetCodecV2("proto")} }

type codec struct{ grpcencoding.CodecV2 }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if ready, ok := message.(mem.Buffer); ok {
		return mem.BufferSlice{ready}, nil
	}
	return c.CodecV2.Marshal(message)
}

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	switch m := message.(type) {
	case encoding.BinaryUnmarshaler:
		return m.UnmarshalBinary(whole.ReadOnlyData())
	case proto.Message:
		return Unmarshal(whole.ReadOnlyData(), m)
	}
	return c.CodecV2.Unmarshal(data, message)
}
