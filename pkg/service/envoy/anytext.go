package envoy

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Unmarshal reads data into m as proto.Unmarshal does, but takes strings with any bytes: Envoy
// copies into them the bytes that its clients send. A message with strings that are not UTF-8 is
// read by reflection, which takes several times as long. proto.Marshal refuses such a message.
func Unmarshal(data []byte, m proto.Message) error {
	err := proto.Unmarshal(data, m)
	if err == nil {
		return nil
	}
	proto.Reset(m)
	if readAnyText(data, m.ProtoReflect()) != nil {
		return err
	}
	return nil
}

// readAnyText merges data into m.
func readAnyText(data []byte, m protoreflect.Message) error {
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeField(data)
		if size < 0 {
			return errWire
		}
		whole := data[:size]
		data = data[size:]
		to := m.Descriptor().Fields().ByNumber(number)
		var err error
		texts := to != nil && (to.Kind() == protoreflect.StringKind || to.Kind() == protoreflect.MessageKind)
		if texts && kind == protowire.BytesType { // messages may have strings, too
			_, _, tag := protowire.ConsumeTag(whole)
			value, _ := protowire.ConsumeBytes(whole[tag:])
			err = readField(value, m, to)
		} else {
			err = proto.UnmarshalOptions{Merge: true}.Unmarshal(whole, m.Interface())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readField merges a value of a field into m.
func readField(value []byte, m protoreflect.Message, f protoreflect.FieldDescriptor) error {
	text := f.Kind() == protoreflect.StringKind
	switch {
	case f.IsMap():
		entry := dynamicpb.NewMessage(f.Message())
		err := readAnyText(value, entry)
		m.Mutable(f).Map().Set(entry.Get(f.MapKey()).MapKey(), entry.Get(f.MapValue()))
		return err
	case text && f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString(string(value)))
		return nil
	case text:
		m.Set(f, protoreflect.ValueOfString(string(value)))
		return nil
	case f.IsList():
		return readAnyText(value, m.Mutable(f).List().AppendMutable().Message())
	}
	return readAnyText(value, m.Mutable(f).Message())
}
