package admin_test

import (
	"encoding"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"example.org/rls/pkg/admin"
	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/top"
)

// The messages of gRPC have the fields of the documents of HTTP, and no others.
func TestMessagesHaveTheFieldsOfDocuments(t *testing.T) {
	for document, message := range map[any]proto.Message{
		(*explain.Document)(nil): &pb.Explanation{},
		(*admin.Counters)(nil):   &pb.Counters{},
		(*admin.Changes)(nil):    &pb.Changes{},
		(*admin.Progress)(nil):   &pb.Progress{},
		(*admin.AuditLog)(nil):   &pb.AuditReply{},
		(*top.Table)(nil):        &pb.TopReply{},
	} {
		compareFields(t, reflect.TypeOf(document), message.ProtoReflect().Descriptor())
	}
}

func compareFields(t *testing.T, document reflect.Type, message protoreflect.MessageDescriptor) {
	fields := map[string]reflect.Type{}
	collectFields(elem(document), fields)
	if len(fields) == 0 {
		t.Errorf("%v has no fields", document)
	}
	for name, field := range fields {
		of := message.Fields().ByTextName(name)
		switch {
		case of == nil:
			t.Errorf("the message %s has no field %s of %v", message.Name(), name, document)
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

// collectFields adds the types of a struct's fields by their names in JSON.
func collectFields(of reflect.Type, to map[string]reflect.Type) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			collectFields(elem(field.Type), to)
		case name != "-":
			to[name] = field.Type
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
