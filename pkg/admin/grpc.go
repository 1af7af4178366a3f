package admin

import (
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "example.org/rls/pkg/admin/adminpb"
)

// newGRPC returns the handler of calls over gRPC whose callers are known. On the wire a
// unary method is a stream of one message.
func (a *API) newGRPC() http.Handler {
	described := grpc.ServiceDesc{ServiceName: pb.Admin_ServiceDesc.ServiceName, Metadata: pb.Admin_ServiceDesc.Metadata}
	for i := range routes {
		r := &routes[i]
		described.Streams = append(described.Streams, grpc.StreamDesc{StreamName: r.method, Handler: a.serve(r), ServerStreams: true})
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxBody))
	server.RegisterService(&described, nil)
	reflection.Register(server)
	return server
}

// serve answers a call by the documents of a route as messages.
func (a *API) serve(r *route) grpc.StreamHandler {
	return func(_ any, to grpc.ServerStream) error {
		if callerOf(to.Context()).role < r.role {
			return errReadOnly
		}
		request, _ := r.messages()
		if err := to.RecvMsg(request); err != nil {
			return err
		}
		return a.call(to.Context(), r, request, func(document any) error {
			if document == opened {
				return to.SendHeader(nil)
			}
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
