// Package kuadrant is Kuadrant's RateLimitService on top of package service, beside package
// envoy, which reads and writes the messages that both services have. [Server] is the way in.
package kuadrant

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	pb "example.org/rls/pkg/service/kuadrant/kuadrantpb"
)

// Server serves kuadrant.service.ratelimit.v1.RateLimitService.
type Server struct {
	pb.UnimplementedRateLimitServiceServer
	envoy *envoy.Server
}

// Register registers the service, whose calls e decides. The service of e needs
// [service.Config.MaxHold].
func Register(to grpc.ServiceRegistrar, e *envoy.Server) {
	pb.RegisterRateLimitServiceServer(to, &Server{envoy: e})
}

// CheckRateLimit answers what a request of hits_addend would be answered. It charges nothing.
func (s *Server) CheckRateLimit(ctx context.Context, m *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.envoy.Call(ctx, m, &service.Call{Kind: service.Check})
}

// Report charges hits_addend, whatever remains, and answers OK.
func (s *Server) Report(ctx context.Context, m *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.envoy.Call(ctx, m, &service.Call{Kind: service.Report})
}

// Reserve holds hits under a new id, in all limits that match or in none.
func (s *Server) Reserve(ctx context.Context, m *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	ttl := m.GetTtl().AsDuration()
	if ttl < 0 || m.Ttl != nil && m.Ttl.CheckValid() != nil {
		return nil, status.Error(codes.InvalidArgument, "ttl must be a duration above 0s; without one the hits are held for KUADRANT_RLS_MAX_TTL")
	}
	id := make([]byte, idBytes)
	_, _ = rand.Read(id) // it never fails
	call := &service.Call{Kind: service.Reserve, Amount: m.GetAmount(), ID: string(id), TTL: ttl}
	code, err := s.hold(ctx, m.GetDomain(), m.GetDescriptors(), call)
	if err != nil || code != rls.RateLimitResponse_OK {
		return &pb.ReserveResponse{Code: code}, err
	}
	return &pb.ReserveResponse{Code: code, ReservationId: hex.EncodeToString(id)}, nil
}

// Commit ends a hold and charges the true cost, whatever remains.
func (s *Server) Commit(ctx context.Context, m *pb.CommitRequest) (*pb.CommitResponse, error) {
	call := &service.Call{Kind: service.Commit, Amount: m.GetActualAmount()}
	if id, err := hex.DecodeString(m.GetReservationId()); err == nil && len(id) == idBytes {
		call.ID = string(id)
	}
	code, err := s.hold(ctx, m.GetDomain(), m.GetDescriptors(), call)
	return &pb.CommitResponse{Code: code, ReservationReleased: call.Released}, err
}

// idBytes is the length of an id, which is written in hexadecimal.
const idBytes = 16

// hold decides a call whose cost is not in the descriptors.
func (s *Server) hold(ctx context.Context, domain string, list []*common.RateLimitDescriptor, call *service.Call) (rls.RateLimitResponse_Code, error) {
	for i, d := range list {
		if d.GetIsNegativeHits() {
			return 0, status.Errorf(codes.InvalidArgument, "descriptors[%d].is_negative_hits has no meaning for a hold; a Commit with actual_amount 0 gives all hits back", i)
		}
	}
	reply, err := s.envoy.Call(ctx, &rls.RateLimitRequest{Domain: domain, Descriptors: list}, call)
	return reply.GetOverallCode(), err
}
