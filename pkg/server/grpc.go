package server

import (
	"fmt"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// minPing is the shortest interval at which clients may send keepalive pings;
// who sends several sooner is disconnected. Envoy's interval is configurable,
// and clients that ping once a second are careful, not hostile: grpc-go's own
// bound of 5 minutes would cut them off.
const minPing = 500 * time.Millisecond

const (
	// A client that says nothing for idlePing is pinged, and its connection is
	// closed when it does not answer within pingWithin: clients that were cut
	// off leave nothing behind.
	idlePing   = time.Minute
	pingWithin = 20 * time.Second
	// takeWithin bounds how long a client, of HTTP too, may take nothing of
	// what it is sent.
	takeWithin = pingWithin
	// maxHeaderList bounds the metadata of a call, in bytes; grpc-go's own
	// bound is 16 MiB.
	maxHeaderList = 64 << 10
)

func (s *Server) newGRPC() (*grpc.Server, error) {
	c := s.cfg.GRPC
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.edge.unary),
		grpc.ChainStreamInterceptor(s.edge.stream),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      c.MaxConnectionAge,
			MaxConnectionAgeGrace: c.MaxConnectionAgeGrace,
			Time:                  idlePing,
			Timeout:               pingWithin,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(uint32(c.MaxConcurrentStreams)),
		grpc.ConnectionTimeout(handshakeWithin),
		grpc.MaxRecvMsgSize(s.cfg.MaxBytes),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.NumStreamWorkers(uint32(c.StreamWorkers)),
	}
	creds := insecure.NewCredentials()
	if c.ServerUseTLS {
		certs, err := readCertificates(c, s.cfg.Log)
		if err != nil {
			return nil, fmt.Errorf("gRPC: %w", err)
		}
		s.certs = certs
		creds = &refusals{credentials.NewTLS(certs.config()), s.cfg.Log}
	}
	if rate := c.MaxCancellationsPerSecond; rate > 0 {
		creds = &guard{creds, rate, s.cfg.Measure, s.cfg.Log}
	}
	options = append(options, grpc.Creds(creds))
	g := grpc.NewServer(options...)
	rls.RegisterRateLimitServiceServer(g, s.cfg.Service)
	healthpb.RegisterHealthServer(g, s.health.grpc)
	if c.Reflection {
		reflection.Register(g)
	}
	if c.Channelz {
		channelz.RegisterChannelzServiceToServer(g)
	}
	return g, nil
}
