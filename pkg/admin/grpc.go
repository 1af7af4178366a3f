package admin

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "example.org/rls/pkg/admin/adminpb"
)

// newGRPC returns the handler of calls over gRPC whose callers are known and may make
// them.
func (a *API) newGRPC() http.Handler {
	described := grpc.ServiceDesc{ServiceName: pb.Admin_ServiceDesc.ServiceName, Metadata: pb.Admin_ServiceDesc.Metadata}
	for i := range routes {
		if r := &routes[i]; !r.streams() {
			described.Methods = append(described.Methods, grpc.MethodDesc{MethodName: r.method, Handler: a.unary(r)})
		} else {
			described.Streams = append(described.Streams, grpc.StreamDesc{StreamName: r.method, Handler: a.streaming(r), ServerStreams: true})
		}
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxBody))
	server.RegisterService(&described, nil)
	reflection.Register(server)
	return server
}

// roleOf is the role that a call of a gRPC method needs.
func roleOf(path string) role {
	method, own := strings.CutPrefix(path, "/"+pb.Admin_ServiceDesc.ServiceName+"/")
	for i := range routes {
		if own && routes[i].method == method {
			return routes[i].role
		}
	}
	return reader
}

func (a *API) unary(r *route) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request, reply := r.messages()
		if err := decode(request); err != nil {
			return nil, err
		}
		return reply, a.call(ctx, r, request, func(document any) error { return fill(reply, document) })
	}
}

func (a *API) streaming(r *route) grpc.StreamHandler {
	return func(_ any, to grpc.ServerStream) error {
		request, _ := r.messages()
		if err := to.RecvMsg(request); err != nil {
			return err
		}
		return a.call(to.Context(), r, request, func(document any) error {
			_, message := r.messages()
			if err := fill(message, document); err != nil {
				return err
			}
			return to.SendMsg(message)
		})
	}
}

// fill sets a message to a document, whose JSON has the same names. Fields that the
// message does not have are left out.
func fill(to proto.Message, document any) error {
	data, err := encode(document)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, to)
}
