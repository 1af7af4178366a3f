package xds

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// decode reads a resource. Its error says that the resource is not a
// RateLimitConfig at all, or that there is no room for its rules; problems of the
// rules in it are left to [rules.Load].
func decode(resource *anypb.Any, room *int) (*rules.File, error) {
	var config ratelimit.RateLimitConfig
	if err := resource.UnmarshalTo(&config); err != nil {
		return nil, fmt.Errorf("decode %q: %w", resource.GetTypeUrl(), err)
	}
	return convert(&config, room)
}

// convert turns a resource into rules with the fields of rule files, so that
// rules mean the same wherever they come from. It takes about as much from room as
// they need, and fails before there is too little.
func convert(config *ratelimit.RateLimitConfig, room *int) (*rules.File, error) {
	name := cmp.Or(config.GetName(), "unnamed resource")
	c := converter{room: room}
	root := c.message(config.ProtoReflect(), name, name+": descriptors", 0)
	if c.err != nil {
		return nil, fmt.Errorf("%s: %w", name, c.err)
	}
	return &rules.File{Name: name, Root: &root, FromMessage: true}, nil
}

// converter makes mappings of messages, whose fields have the names of the fields of rules.
type converter struct {
	room  *int
	turns descriptors.Turns
	err   error // the first one
}

// message is a message, and the descriptors in it, which stand at the path below. The position of each value is
// the path of its descriptor. depth is how many descriptors stand around it.
func (c *converter) message(m protoreflect.Message, path, below string, depth int) document.Value {
	c.turns.Next()
	v := document.Value{Kind: document.Map, At: document.Position{File: path}}
	limit, _ := m.Interface().(*ratelimit.RateLimitPolicy) // the only message with a unit or a number
	all := m.Descriptor().Fields()
	for i := range all.Len() {
		f := all.Get(i)
		// A limit has a unit and a number, also if they are 0, unless it is unlimited.
		needed := f.Kind() == protoreflect.EnumKind || f.Kind() == protoreflect.Uint32Kind
		if (m.Has(f) || needed && !limit.GetUnlimited()) && (depth > 0 || f.Name() != "name") { // that of the resource
			v.Content = append(v.Content, document.Text(v.At, string(f.Name())), c.field(f, m.Get(f), v.At, below, depth))
		}
	}
	return v
}

// field is the value x of the field f of a message.
func (c *converter) field(
	f protoreflect.FieldDescriptor, x protoreflect.Value, at document.Position, below string, depth int,
) document.Value {
	switch {
	case f.Name() == "descriptors":
		return document.Value{Kind: document.List, At: at, Content: c.descriptors(x.List(), below, depth)}
	case f.IsList():
		list := document.Value{Kind: document.List, At: at}
		for i := range x.List().Len() {
			list.Content = append(list.Content, c.message(x.List().Get(i).Message(), at.File, "", depth))
		}
		return list
	case f.Kind() == protoreflect.BoolKind:
		return document.Scalar(at, "true", true)
	case f.Kind() == protoreflect.Uint32Kind:
		return number(at, float64(x.Uint()))
	case f.Kind() == protoreflect.EnumKind:
		return document.Text(at, ratelimit.RateLimitUnit(x.Enum()).String())
	case f.Kind() == protoreflect.StringKind:
		return document.Text(at, x.String())
	}
	if s, is := x.Message().Interface().(*structpb.Struct); is { // only the fields in metadata.rls can be wrong
		return structure(at.File+".metadata.rls", s)
	}
	return c.message(x.Message(), at.File, "", depth)
}

func (c *converter) descriptors(list protoreflect.List, path string, depth int) (all []document.Value) {
	const size = 512 // of a descriptor without its path
	*c.room -= list.Len() * (size + len(path))
	switch {
	case *c.room < 0:
		c.err = cmp.Or(c.err, errTooLarge)
	case depth == rules.MaxDepth:
		c.err = cmp.Or(c.err, fmt.Errorf("descriptors stand more than %d deep in each other", rules.MaxDepth))
	}
	for i := 0; c.err == nil && i < list.Len(); i++ {
		item := path + "[" + strconv.Itoa(i) + "]"
		all = append(all, c.message(list.Get(i).Message(), item, item+".descriptors", depth+1))
	}
	return all
}

// structure is a struct with its keys in order.
func structure(path string, s *structpb.Struct) document.Value {
	v := document.Value{Kind: document.Map, At: document.Position{File: path}}
	for _, key := range slices.Sorted(maps.Keys(s.GetFields())) {
		v.Content = append(v.Content, document.Text(v.At, key), value(path, s.GetFields()[key]))
	}
	return v
}

func value(path string, v *structpb.Value) document.Value {
	at := document.Position{File: path}
	switch v := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return document.Scalar(at, strconv.FormatBool(v.BoolValue), v.BoolValue)
	case *structpb.Value_NumberValue:
		return number(at, v.NumberValue)
	case *structpb.Value_StringValue:
		return document.Text(at, v.StringValue)
	case *structpb.Value_StructValue:
		return structure(path, v.StructValue)
	case *structpb.Value_ListValue:
		list := document.Value{Kind: document.List, At: at}
		for _, item := range v.ListValue.GetValues() {
			list.Content = append(list.Content, value(path, item))
		}
		return list
	}
	return document.Scalar(at, "null", nil)
}

// number is an integer if f is whole and at most 2^53 either way, where a float64
// is exact; otherwise it is a number with a fraction.
func number(at document.Position, f float64) document.Value {
	const exact = 1 << 53
	if f == math.Trunc(f) && math.Abs(f) <= exact {
		return document.Scalar(at, strconv.FormatInt(int64(f), 10), int64(f))
	}
	return document.Scalar(at, strconv.FormatFloat(f, 'g', -1, 64), f)
}
