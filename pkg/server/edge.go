package server

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/metrics"
)

// edge is what every request passes on its way in: nothing that happens behind
// it ends the process.
type edge struct {
	measure    *metrics.Metrics
	log        *slog.Logger
	epoch      time.Time       // time.Since it reads one clock, where time.Now reads two
	streams    context.Context // ends when streams have to
	endStreams context.CancelFunc
}

func newEdge(measure *metrics.Metrics, log *slog.Logger) *edge {
	e := &edge{measure: measure, log: log, epoch: time.Now()}
	e.streams, e.endStreams = context.WithCancel(context.Background())
	return e
}

// recovered makes an error of a panic, for deferred calls.
func (e *edge) recovered(where string, err *error) {
	if p := recover(); p != nil {
		e.measure.Panicked()
		e.log.Error("panic", "in", where, "panic", p, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "internal error")
	}
}

func (e *edge) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	start := time.Since(e.epoch)
	resp, err = e.call(ctx, req, info.FullMethod, handler)
	e.measure.Called(info.FullMethod, time.Since(e.epoch)-start)
	if info.FullMethod == rls.RateLimitService_ShouldRateLimit_FullMethodName {
		e.measure.Answered(status.Code(err))
	}
	return resp, err
}

func (e *edge) call(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (_ any, err error) {
	defer e.recovered(method, &err)
	return handler(ctx, req)
}

// stream is for health watches and reflection, which last as long as their
// client likes.
func (e *edge) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer e.recovered(info.FullMethod, &err)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(e.streams, cancel)()
	return handler(srv, &endingStream{stream, ctx})
}

type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *endingStream) Context() context.Context { return s.ctx }

// web is the edge of an HTTP listener.
func (e *edge) web(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		func() {
			defer e.recovered(name+" "+r.URL.Path, &err)
			next.ServeHTTP(w, r)
		}()
		if err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		}
	})
}
