package server

import (
	"crypto/tls"
	"maps"
	"slices"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// GRPC is the gRPC listener. The fields with a tag env are settings of the process.
type GRPC struct {
	// Address is a host:port; port 0 takes a free one.
	Address string `kong:"-"`
	// UnixSocket is the path of a Unix socket to listen on instead.
	UnixSocket string `name:"uds" env:"UDS" help:"Unix socket to listen on instead."`
	// TLS is the server's side of TLS; nil for plain text.
	TLS *tls.Config `kong:"-"`
	// Register registers the services. [Health] reports on each of them.
	Register func(grpc.ServiceRegistrar) `kong:"-"`
	// Codec reads and writes the messages of all services; nil is protobuf's.
	Codec encoding.CodecV2 `kong:"-"`
	// Reflection and Channelz serve gRPC's own services of these names.
	Reflection, Channelz bool `kong:"-"`

	// MaxConnectionAge is when a connection is told to go (GOAWAY); 0 is never.
	// Its calls then have MaxConnectionAgeGrace to finish; 0 is unlimited.
	MaxConnectionAge      time.Duration `env:"MAX_CONNECTION_AGE" default:"24h" min:"0s" help:"Age, ±10%, at which a connection gets a GOAWAY; 0 is never."`
	MaxConnectionAgeGrace time.Duration `env:"MAX_CONNECTION_AGE_GRACE" default:"1h" min:"0s" help:"Time for a connection's calls after its GOAWAY; 0 is unlimited."`
	// MaxConcurrentStreams bounds the calls in flight on one connection.
	MaxConcurrentStreams int `env:"MAX_CONCURRENT_STREAMS" default:"1024" min:"1" max:"1000000" help:"Calls in flight on a connection; more are refused. Envoy opens up to its cluster's max_concurrent_streams (1024): lower both."`
	// MaxCancellationsPerSecond bounds how many streams of one connection its
	// client may reset, and how many it may make the server reset; 0 is
	// unlimited.
	MaxCancellationsPerSecond int `env:"MAX_CANCELLATIONS_PER_SECOND" default:"2000" min:"0" max:"1000000" help:"Cancelled or reset calls per second (twice as many at once) beyond which a connection is closed; 0 is unlimited."`
}

// minPing is the shortest interval at which clients may send keepalive pings; a
// client that sends several sooner is disconnected. The interval of Envoy is
// configurable, and a client that pings once a second is careful, not hostile:
// grpc-go's own bound of 5 minutes would disconnect it.
const minPing = 500 * time.Millisecond

const (
	// A client that sends nothing for idlePing is pinged, and its connection is
	// closed when it does not answer within pingWithin: clients that were cut
	// off leave nothing behind.
	idlePing   = time.Minute
	pingWithin = 20 * time.Second
	// takeWithin bounds how long a client, of gRPC or HTTP, may leave the bytes
	// unread that it is sent.
	takeWithin = pingWithin
	// maxHeaderList bounds the metadata of a call, in bytes; grpc-go's own
	// bound is 16 MiB.
	maxHeaderList = 64 << 10
	// readBeyond times Options.MaxBytes are read of a message, so that the service can deny a larger
	// request than it decides; gRPC itself ends a call with a larger one still, with an error.
	readBeyond = 4
	// streamWindow and connWindow are the bytes that a client may send ahead, on
	// one stream and on all streams of its connection. Fixed windows keep
	// grpc-go from measuring each connection with PING frames, of which a
	// server of small requests sends one for nearly each request that comes
	// alone.
	streamWindow = 64 << 10
	connWindow   = 1 << 20
	// streamWorkers is the number of goroutines that are kept for calls. Further calls start a
	// goroutine each, whose stack has to grow: without any kept the process takes a fifth more.
	streamWorkers = 64
)

func (s *Server) newGRPC(o *GRPC) *grpc.Server {
	options := []grpc.ServerOption{
		grpc.Creds(s.credentials(o)),
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      o.MaxConnectionAge,
			MaxConnectionAgeGrace: o.MaxConnectionAgeGrace,
			Time:                  idlePing,
			Timeout:               pingWithin,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(uint32(o.MaxConcurrentStreams)),
		grpc.ConnectionTimeout(handshakeWithin),
		grpc.MaxRecvMsgSize(readBeyond * s.options.MaxBytes),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.NumStreamWorkers(uint32(streamWorkers)),
	}
	if o.Codec != nil {
		options = append(options, grpc.ForceServerCodecV2(o.Codec))
	}
	g := grpc.NewServer(options...)
	o.Register(g)
	s.options.Health.add(slices.Collect(maps.Keys(g.GetServiceInfo()))...)
	healthpb.RegisterHealthServer(g, s.options.Health.grpc)
	if o.Reflection {
		reflection.Register(g)
	}
	if o.Channelz {
		channelz.RegisterChannelzServiceToServer(g)
	}
	return g
}

// turnChannelzOff is the only way to stop grpc-go from counting for channelz; see
// docs/adr/0013-by-hand.md.
//
//go:linkname turnChannelzOff google.golang.org/grpc/internal.ChannelzTurnOffForTesting
var turnChannelzOff func()

// WithoutChannelz stops grpc-go, in the whole process and for good, from counting and
// timing each call for channelz. grpc-go does so in every program that has channelz'
// service in it, used or not: about 2 % of a decision in memory.
func WithoutChannelz() {
	if turnChannelzOff != nil { // a test notices if grpc-go renames it
		turnChannelzOff()
	}
}
