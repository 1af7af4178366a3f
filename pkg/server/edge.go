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
)

// edge wraps every handler: it measures calls, turns panics into errors and
// ends streams when the server stops.
type edge struct {
	measure    Measure
	log        *slog.Logger
	epoch      time.Time       // time.Since reads one clock of the system, time.Now two
	streams    context.Context // ends when streams have to end
	endStreams context.CancelFunc
}

func newEdge(measure Measure, log *slog.Logger) *edge {
	e := &edge{measure: measure, log: log, epoch: time.Now()}
	e.streams, e.endStreams = context.WithCancel(context.Background())
	return e
}

// recovered turns a panic into an error, logs and counts it. It must be
// deferred itself, since recover works only in the deferred function.
func recovered(measure Measure, log *slog.Logger, where string, err *error) {
	if p := recover(); p != nil {
		measure.Panicked()
		log.Error("panic", "in", where, "panic", p, "stack", string(debug.Stack()))
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
	defer recovered(e.measure, e.log, method, &err)
	return handler(ctx, req)
}

// stream runs the handler of a health watch or of reflection, which lasts as
// long as its client likes: its context ends when the server stops.
func (e *edge) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer recovered(e.measure, e.log, info.FullMethod, &err)
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

// web wraps the pages of the HTTP listener of that name.
func (e *edge) web(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		func() {
			defer recovered(e.measure, e.log, name+" "+r.URL.Path, &err)
			next.ServeHTTP(w, r)
		}()
		if err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		}
	})
}
