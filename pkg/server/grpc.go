package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// minPing is the shortest interval at which clients may send keepalive pings;
// Envoy's are configurable, and grpc-go's own minimum of 5 minutes would cut
// off careful ones.
const minPing = 10 * time.Second

func (s *Server) newGRPC() (*grpc.Server, error) {
	c := s.cfg.GRPC
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.edge.unary),
		grpc.ChainStreamInterceptor(s.edge.stream),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      c.MaxConnectionAge,
			MaxConnectionAgeGrace: c.MaxConnectionAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(uint32(c.MaxConcurrentStreams)),
		grpc.MaxRecvMsgSize(s.cfg.MaxBytes),
		grpc.NumStreamWorkers(uint32(c.StreamWorkers)),
	}
	if c.ServerUseTLS {
		tls, err := tlsConfig(c)
		if err != nil {
			return nil, fmt.Errorf("gRPC: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(tls)))
	}
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

func (s *Server) listenGRPC() (net.Listener, error) {
	network, addr := "tcp", address(s.cfg.GRPC.Host, s.cfg.GRPC.Port)
	if path := s.cfg.GRPC.UDS; path != "" {
		network, addr = "unix", path
		if err := removeDeadSocket(path); err != nil {
			return nil, fmt.Errorf("gRPC: %w", err)
		}
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return nil, fmt.Errorf("gRPC: %w", err)
	}
	return l, nil
}

// removeDeadSocket removes what a process that was killed left behind, and
// nothing else.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() != fs.ModeSocket {
		return nil // listening says what is wrong, if anything
	}
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return os.Remove(path)
	}
	return err
}
