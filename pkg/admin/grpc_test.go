package admin_test

import (
	"context"
	"encoding"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"example.org/rls/pkg/admin"
	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
)

// dial returns a connection whose calls have a token, if it is not "".
func (r *rig) dial(token string, creds credentials.TransportCredentials) *grpc.ClientConn {
	r.t.Helper()
	_, addr, _ := strings.Cut(r.url, "://")
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds), grpc.WithPerRPCCredentials(bearerToken(token)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

type bearerToken string

func (b bearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearerToken) RequireTransportSecurity() bool { return false }

var annOverGRPC = []*pb.Descriptor{{Entries: []*pb.Entry{{Key: "user", Value: "ann"}}}}

// methods are all methods of the gRPC service.
var methods = map[string]struct {
	request, reply proto.Message
	write          bool
}{
	"Status":  {&pb.StatusRequest{}, nil, false},
	"Rules":   {&pb.RulesRequest{}, nil, false},
	"Explain": {&pb.LookRequest{Domain: "shop", Descriptors: annOverGRPC}, &pb.Explanation{}, false},
	"Get":     {&pb.LookRequest{Domain: "shop", Descriptors: annOverGRPC}, &pb.Counters{}, false},
	"Reset":   {&pb.ResetRequest{Domain: "shop", Descriptors: annOverGRPC}, &pb.Changes{}, true},
	"Grant":   {&pb.GrantRequest{Domain: "shop", Descriptors: annOverGRPC, Hits: 1}, &pb.Changes{}, true},
	"Top":     {&pb.TopRequest{}, &pb.TopReply{}, false},
	"Denials": {&pb.DenialsRequest{}, &pb.DenialsReply{}, false},
	"Grants":  {&pb.GrantsRequest{}, &pb.GrantsReply{}, false},
	"Audit":   {&pb.AuditRequest{}, &pb.AuditReply{}, false},
	"Find":    {&pb.FindRequest{Q: "ann"}, &pb.FindReply{}, false},
	"History": {&pb.HistoryRequest{}, &pb.HistoryReply{}, false},
	"Watch":   {&pb.WatchRequest{}, nil, false},

	"FollowDenials": {&pb.DenialsRequest{}, &pb.Denial{}, false},
	"Forget":        {&pb.ResetRequest{Domain: "shop", Descriptors: annOverGRPC}, &pb.ForgetReply{}, true},
	"ResetMatching": {&pb.ResetRequest{Domain: "shop", Rule: "shop.user", AllMatching: true}, nil, true},
}

func TestMethodsOverGRPC(t *testing.T) {
	r := start(t, listening{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if all := len(pb.Admin_ServiceDesc.Streams) + len(pb.Admin_ServiceDesc.Methods); len(methods) != all {
		t.Errorf("%d of %d methods are tested", len(methods), all)
	}
	for name, test := range methods {
		for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "wrong-token-of-mallory": codes.Unauthenticated, readToken: codes.OK, writeToken: codes.OK} {
			if token == readToken && test.write {
				want = codes.PermissionDenied
			}
			conn := r.dial(token, insecure.NewCredentials())
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/rls.admin.v1.Admin/"+name)
			if err != nil {
				t.Fatal(err)
			}
			reply := test.reply
			if reply == nil {
				reply = &pb.StatusRequest{} // has no field; all stay unknown
			}
			_ = stream.SendMsg(test.request)
			_ = stream.CloseSend()
			if name == "FollowDenials" && want == codes.OK { // it has begun, and has nothing to tell
				if header, err := stream.Header(); err != nil || len(header) == 0 {
					t.Errorf("%s with %q: got %v, %v", name, token, header, err)
				}
				continue
			}
			if err := stream.RecvMsg(reply); status.Code(err) != want || want != codes.OK && status.Convert(err).Message() == "" {
				t.Errorf("%s with %q: got %v, want %v", name, token, err, want)
			}
		}
	}
	for _, token := range []string{"", writeToken} {
		want := map[string]codes.Code{"": codes.Unauthenticated, writeToken: codes.Unimplemented}[token]
		if err := r.dial(token, insecure.NewCredentials()).Invoke(ctx, "/rls.admin.v1.Admin/Nothing", &pb.StatusRequest{}, &pb.StatusRequest{}); status.Code(err) != want {
			t.Errorf("an unknown method with %q: got %v", token, err)
		}
	}
}

// Messages have every field of the documents of HTTP.
func TestDocumentsOverGRPC(t *testing.T) {
	r := start(t, listening{})
	r.charge("ann", 3)
	client := pb.NewAdminClient(r.dial(writeToken, insecure.NewCredentials()))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "origin", r.url)
	counters, err := client.Get(ctx, &pb.LookRequest{Domain: "shop", Descriptors: annOverGRPC})
	if err != nil {
		t.Fatal(err)
	}
	limit := counters.GetDescriptors()[0].GetLimits()[0]
	if limit.GetRule() != "shop.user" || limit.GetCount() != 3 || limit.GetRemaining() != 7 || limit.GetNext() == nil || limit.GetNext().AsDuration() != 0 || limit.GetNever() || limit.GetWindow().AsDuration() != time.Minute {
		t.Errorf("got %v", limit)
	}
	explanation, err := client.Explain(ctx, &pb.LookRequest{Domain: "shop", Descriptors: annOverGRPC})
	if err != nil {
		t.Fatal(err)
	}
	if step := explanation.GetDescriptors()[0].GetPath()[0]; step.GetFile() != "rules.yaml" || step.GetLine() != 3 || !step.GetWon() {
		t.Errorf("got %v", step)
	}
	changes, err := client.Reset(ctx, &pb.ResetRequest{Domain: "shop", Descriptors: annOverGRPC, Reason: "a call"})
	if err != nil || changes.GetChanged() != 1 || changes.GetChanges()[0].GetBefore().GetCount() != 3 || changes.GetChanges()[0].GetAfter().GetRemaining() != 10 {
		t.Errorf("got %v, %v", changes, err)
	}
	audit, err := client.Audit(ctx, &pb.AuditRequest{})
	if err != nil || len(audit.GetEntries()) != 1 || audit.GetEntries()[0].GetWho() != "alice" || audit.GetEntries()[0].GetReason() != "a call" ||
		time.Since(audit.GetEntries()[0].GetTime().AsTime()) > time.Minute {
		t.Errorf("got %v, %v", audit, err)
	}
	state, err := client.Status(ctx, &pb.StatusRequest{})
	if err != nil || state.GetFields()["health"].GetStructValue().GetFields()["state"].GetStringValue() != "ok" {
		t.Errorf("got %v, %v", state, err)
	}
	if _, err := client.Get(metadata.AppendToOutgoingContext(t.Context(), "origin", "http://evil.example"), &pb.LookRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a foreign origin: got %v", err)
	}
	for code, request := range map[codes.Code]*pb.LookRequest{
		codes.InvalidArgument: {Domain: "shop"},
		codes.NotFound:        {Domain: "shop", Descriptors: []*pb.Descriptor{{Entries: []*pb.Entry{{Key: "nothing"}}}}},
	} {
		if _, err := client.Get(ctx, request); status.Code(err) != code {
			t.Errorf("%v: got %v, want %v", request, err, code)
		}
	}
}

// Tools such as grpcurl find the methods by reflection, with a token.
func TestReflection(t *testing.T) {
	r := start(t, listening{})
	list := func(token string) error {
		stream, err := reflection.NewServerReflectionClient(r.dial(token, insecure.NewCredentials())).ServerReflectionInfo(t.Context())
		if err != nil {
			return err
		}
		_ = stream.Send(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}})
		reply, err := stream.Recv()
		if err == nil && !strings.Contains(reply.String(), "rls.admin.v1.Admin") {
			t.Errorf("got %v", reply)
		}
		return err
	}
	if err := list(""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without a token: got %v", err)
	}
	if err := list(readToken); err != nil {
		t.Error(err)
	}
}

// The messages of gRPC have the fields of the documents of HTTP, and no others.
func TestMessagesHaveTheFieldsOfDocuments(t *testing.T) {
	for document, message := range map[any]proto.Message{
		(*explain.Document)(nil):   &pb.Explanation{},
		(*admin.Counters)(nil):     &pb.Counters{},
		(*admin.Grants)(nil):       &pb.GrantsReply{},
		(*admin.Changes)(nil):      &pb.Changes{},
		(*admin.Progress)(nil):     &pb.Progress{},
		(*admin.AuditLog)(nil):     &pb.AuditReply{},
		(*admin.TopOfAll)(nil):     &pb.TopReply{},
		(*admin.Found)(nil):        &pb.FindReply{},
		(*admin.History)(nil):      &pb.HistoryReply{},
		(*admin.DenialsOfAll)(nil): &pb.DenialsReply{},
	} {
		compareFields(t, reflect.TypeOf(document), message.ProtoReflect().Descriptor())
	}
}

func compareFields(t *testing.T, document reflect.Type, message protoreflect.MessageDescriptor) {
	fields := map[string]reflect.Type{} // by their names in JSON
	if elem(document) == reflect.TypeFor[descriptors.Entry]() {
		document = reflect.TypeFor[descriptors.Shown]()
	}
	for _, field := range reflect.VisibleFields(elem(document)) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "-" && (name != "" || !field.Anonymous) {
			fields[name] = field.Type
		}
	}
	if len(fields) == 0 {
		t.Errorf("%v has no fields", document)
	}
	for name, field := range fields {
		of := message.Fields().ByTextName(name)
		switch {
		case of == nil:
			t.Errorf("the message %s has no field %s of %v", message.Name(), name, document)
		case elem(field) == elem(document): // of a limit the pool, which is a limit
		case isStruct(field):
			if of.Message() == nil {
				t.Errorf("the field %s of %s is no message", name, message.Name())
				continue
			}
			compareFields(t, field, of.Message())
		}
	}
	for i := range message.Fields().Len() {
		if name := message.Fields().Get(i).TextName(); fields[name] == nil {
			t.Errorf("%v has no field %s of the message %s", document, name, message.Name())
		}
	}
}

// elem is the type of the elements of a slice, or of the value of a pointer.
func elem(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	return of
}

// isStruct reports whether the JSON of a type is an object, or a list of objects.
func isStruct(of reflect.Type) bool {
	of = elem(of)
	return of.Kind() == reflect.Struct && !of.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
