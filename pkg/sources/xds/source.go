// Package xds brings rules in from a control plane: an xDS management server
// such as Envoy Gateway's, over the Aggregated Discovery Service.
//
// [Source] asks for the RateLimitConfig resources of its node, in the state of
// the world or the delta variant of the protocol. It publishes all of them
// whenever one changes, and tells the server whether they are in force. The
// package promises that refused rules change nothing, that every field of a
// message reaches the rules, that a server that ends streams or repeats refused
// rules causes no busy loop, and that certificates are read for each connection.
// It leaves the meaning of rules to pkg/descriptors/rules.
//
// The protocol is that of
// https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol.
package xds

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/pkg/sources"
)

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Pings find a dead connection. gRPC servers close a connection that is pinged
// more often than every 5 minutes, unless they are set otherwise.
const (
	pingAfter = 6 * time.Minute
	pingWait  = 20 * time.Second
)

// Source is the source that asks a management server.
type Source struct {
	// Server is a gRPC target, such as host:port.
	Server string
	// NodeID and NodeMetadata tell the server which node asks.
	NodeID       string
	NodeMetadata map[string]string
	// Delta asks for changes only, instead of all resources each time.
	Delta bool
	// Headers returns the headers of the request that opens a stream; nil is none.
	Headers func() map[string]string
	// TLS is called for each connection; nil connects without TLS.
	TLS func() (*tls.Config, error)
	// MaxMessageBytes bounds one message of the server; 0 is gRPC's default of
	// 4 MiB.
	MaxMessageBytes int
	Backoff         Backoff
	// Connected is called with true when a stream is open and with false when it ended.
	Connected func(bool)
	Log       *slog.Logger
}

// errUnreachable says that no stream could be opened.
var errUnreachable = errors.New("cannot reach the server")

// Run implements [sources.Source]. It returns nil when ctx ends.
func (s *Source) Run(ctx context.Context, publish sources.Publish) error {
	talk := &conversation{Source: s, node: s.node(), publish: publish}
	wait := waits{Backoff: s.Backoff}
	for {
		talk.heard = false
		start := time.Now()
		err := s.connect(ctx, talk)
		s.Connected(false)
		if ctx.Err() != nil {
			return nil
		}
		if talk.heard || time.Since(start) > s.Backoff.Max {
			wait.failures = 0
		}
		pause := wait.next(errors.Is(err, errUnreachable))
		left := "no rules are in force"
		if talk.inForce {
			left = "the last good rules stay in force"
		}
		s.Log.Warn("xDS: connection ended, "+left, "server", s.Server, "error", explain(err), "wait", pause.Round(time.Millisecond).String())
		sleep(ctx, pause)
	}
}

// connect talks to the server until the stream ends, and returns the reason.
func (s *Source) connect(ctx context.Context, talk *conversation) error {
	secure := insecure.NewCredentials()
	if s.TLS != nil {
		config, err := s.TLS()
		if err != nil {
			return err
		}
		secure = credentials.NewTLS(config)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithDisableServiceConfig(), // saves a DNS query
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWait}),
	}
	if s.MaxMessageBytes > 0 {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.MaxMessageBytes)))
	}
	conn, err := grpc.NewClient(s.Server, options...)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	defer func() { _ = conn.Close() }()

	if s.Headers != nil {
		ctx = metadata.NewOutgoingContext(ctx, metadata.New(s.Headers()))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := discovery.NewAggregatedDiscoveryServiceClient(conn)
	if s.Delta {
		return talk.delta(ctx, client)
	}
	return talk.stateOfTheWorld(ctx, client)
}

func (s *Source) node() *core.Node {
	fields := make(map[string]*structpb.Value, len(s.NodeMetadata))
	for key, value := range s.NodeMetadata {
		fields[key] = structpb.NewStringValue(value)
	}
	return &core.Node{Id: s.NodeID, Metadata: &structpb.Struct{Fields: fields}}
}

// explain is the text of an error, with advice if a setting can help.
func explain(err error) string {
	switch {
	case errors.Is(err, io.EOF):
		return "the server closed the stream"
	case status.Code(err) == codes.ResourceExhausted:
		return err.Error() + "; XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES may be raised"
	}
	return err.Error()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Backoff says how long to wait before the server is asked again.
type Backoff struct {
	// Unreachable is the first wait after a stream could not be opened, Ended the
	// first wait after a stream ended.
	Unreachable, Ended time.Duration
	// Max bounds every wait.
	Max time.Duration
	// Factor multiplies each wait to give the next one. 1 or less means 2.
	Factor float64
	// Jitter replaces each wait by a random one between its half and itself, so
	// that replicas do not all connect at once.
	Jitter bool
}

// waits is a series of waits without a success between them.
type waits struct {
	Backoff
	failures int
}

func (w *waits) next(unreachable bool) time.Duration {
	first, factor := w.Ended, w.Factor
	if unreachable {
		first = w.Unreachable
	}
	if factor <= 1 {
		factor = 2
	}
	wait := min(float64(first)*math.Pow(factor, float64(w.failures)), float64(w.Max))
	w.failures++
	if w.Jitter {
		wait *= 0.5 + rand.Float64()/2
	}
	return time.Duration(wait)
}
