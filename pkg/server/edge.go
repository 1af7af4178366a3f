package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The methods below wrap every handler: they measure calls, turn panics into errors
// and end streams when the server stops.

// recovered turns a panic into an error, logs and counts it. It must be
// deferred itself, since recover works only in the deferred function.
func recovered(measure Measure, log *slog.Logger, where string, err *error) {
	if p := recover(); p != nil {
		measure.Panicked()
		log.Error("panic", "in", where, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	start := time.Since(s.epoch)
	defer func() {
		s.options.Measure.Called(info.FullMethod, time.Since(s.epoch)-start)
		if info.FullMethod == rls.RateLimitService_ShouldRateLimit_FullMethodName {
			s.options.Measure.Answered(status.Code(err))
		}
	}()
	defer recovered(s.options.Measure, s.options.Log, info.FullMethod, &err)
	return handler(ctx, req)
}

// stream runs the handler of a health watch or of reflection, which lasts as
// long as its client likes: its context ends when the server stops, with errStopping as the cause.
func (s *Server) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer recovered(s.options.Measure, s.options.Log, info.FullMethod, &err)
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.streams, func() { cancel(errStopping) })()
	return handler(srv, &edgeStream{stream, ctx})
}

var errStopping = errors.New("the server stops")

type edgeStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *edgeStream) Context() context.Context { return s.ctx }

// web wraps the pages of the HTTP listener of that name. While the server drains, it
// asks clients to connect anew, to another process: a request that meets the end of its
// connection is lost.
func (s *Server) web(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.options.Health.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		var err error
		func() {
			defer recovered(s.options.Measure, s.options.Log, name+" "+r.URL.Path, &err)
			next.ServeHTTP(w, r)
		}()
		if err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		}
	})
}
