package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "example.org/rls/pkg/admin/adminpb"
)

// rpc is the API over gRPC.
type rpc struct {
	pb.UnimplementedAdminServer
	*API
}

// newGRPC returns the handler of calls over gRPC whose callers are known and may make
// them.
func (a *API) newGRPC() http.Handler {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(mostBytes))
	pb.RegisterAdminServer(server, rpc{API: a})
	reflection.Register(server)
	return server
}

// roleOf is the role that a call of a gRPC method needs.
func roleOf(path string) role {
	switch path {
	case pb.Admin_Reset_FullMethodName, pb.Admin_ResetMatching_FullMethodName, pb.Admin_Grant_FullMethodName:
		return writer
	}
	return reader
}

// reply calls a method and makes the message of the document of its answer.
func reply[M proto.Message](a *API, method string, to M, run func() (any, error)) (M, error) {
	document, err := a.call(method, run)
	if err == nil {
		err = fill(to, document)
	}
	return to, err
}

// fill sets a message to a document, whose JSON has the same names. Fields that the
// message does not have are left out.
func fill(to proto.Message, document any) error {
	data, err := json.Marshal(document)
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, to)
	}
	return err
}

// Status implements [pb.AdminServer].
func (s rpc) Status(ctx context.Context, r *pb.StatusRequest) (*structpb.Struct, error) {
	return reply(s.API, "Status", new(structpb.Struct), func() (any, error) { return s.status(ctx, r) })
}

// Rules implements [pb.AdminServer].
func (s rpc) Rules(ctx context.Context, r *pb.RulesRequest) (*structpb.Struct, error) {
	return reply(s.API, "Rules", new(structpb.Struct), func() (any, error) { return s.rules(ctx, r) })
}

// Explain implements [pb.AdminServer].
func (s rpc) Explain(ctx context.Context, r *pb.LookRequest) (*pb.Explanation, error) {
	return reply(s.API, "Explain", new(pb.Explanation), func() (any, error) { return s.explain(ctx, r) })
}

// Get implements [pb.AdminServer].
func (s rpc) Get(ctx context.Context, r *pb.LookRequest) (*pb.Counters, error) {
	return reply(s.API, "Get", new(pb.Counters), func() (any, error) { return s.get(ctx, r) })
}

// Reset implements [pb.AdminServer].
func (s rpc) Reset(ctx context.Context, r *pb.ResetRequest) (*pb.Changes, error) {
	return reply(s.API, "Reset", new(pb.Changes), func() (any, error) { return s.reset(ctx, r) })
}

// Grant implements [pb.AdminServer].
func (s rpc) Grant(ctx context.Context, r *pb.GrantRequest) (*pb.Changes, error) {
	return reply(s.API, "Grant", new(pb.Changes), func() (any, error) { return s.grant(ctx, r) })
}

// Top implements [pb.AdminServer].
func (s rpc) Top(ctx context.Context, r *pb.TopRequest) (*pb.TopReply, error) {
	return reply(s.API, "Top", new(pb.TopReply), func() (any, error) { return s.top(ctx, r) })
}

// Audit implements [pb.AdminServer].
func (s rpc) Audit(ctx context.Context, r *pb.AuditRequest) (*pb.AuditReply, error) {
	return reply(s.API, "Audit", new(pb.AuditReply), func() (any, error) { return s.auditLog(ctx, r) })
}

// Watch implements [pb.AdminServer].
func (s rpc) Watch(_ *pb.WatchRequest, to grpc.ServerStreamingServer[structpb.Struct]) error {
	if s.options.Status == nil {
		return errNoStatus
	}
	return s.stream(to.Context(), "Watch", func(ctx context.Context) error {
		for update := range s.options.Status.Watch(ctx) {
			message := new(structpb.Struct)
			if err := fill(message, json.RawMessage(update)); err != nil {
				return err
			}
			if err := to.Send(message); err != nil {
				return err
			}
		}
		return nil
	})
}
