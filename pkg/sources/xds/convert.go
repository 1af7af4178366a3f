package xds

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
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
	root := mapping(name)
	root.text("domain", config.GetDomain())
	if err := root.descriptors(name+": descriptors", config.GetDescriptors(), 1, room); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &rules.File{Name: name, Root: &root.Value, FromMessage: true}, nil
}

// fields is a mapping that is being built. Its position, and that of the values
// in it, is the path of a descriptor in the message.
type fields struct{ document.Value }

func mapping(path string) *fields {
	return &fields{document.Value{Kind: document.Map, At: document.Position{File: path}}}
}

func (f *fields) add(key string, v document.Value) {
	f.Content = append(f.Content, document.Text(f.At, key), v)
}

func (f *fields) text(key, value string) { f.add(key, document.Text(f.At, value)) }

// flag adds a boolean that is false by default.
func (f *fields) flag(key string, set bool) {
	if set {
		f.add(key, document.Scalar(f.At, "true", true))
	}
}

// list adds a list of mappings unless it is empty.
func (f *fields) list(key string, items []document.Value) {
	if len(items) > 0 {
		f.add(key, document.Value{Kind: document.List, At: f.At, Content: items})
	}
}

func (f *fields) descriptors(path string, list []*ratelimit.RateLimitDescriptor, depth int, room *int) error {
	const size = 512 // of a descriptor without its path
	if *room -= len(list) * (size + len(path)); *room < 0 {
		return errTooLarge
	}
	if len(list) > 0 && depth > rules.MaxDepth {
		return fmt.Errorf("descriptors stand more than %d deep in each other", rules.MaxDepth)
	}
	items := make([]document.Value, len(list))
	var turn descriptors.Turns
	for i, d := range list {
		if i%64 == 0 {
			turn.Give()
		}
		item := mapping(path + "[" + strconv.Itoa(i) + "]")
		item.descriptor(d)
		if err := item.descriptors(item.At.File+".descriptors", d.GetDescriptors(), depth+1, room); err != nil {
			return err
		}
		items[i] = item.Value
	}
	f.list("descriptors", items)
	return nil
}

func (f *fields) descriptor(d *ratelimit.RateLimitDescriptor) {
	f.text("key", d.GetKey())
	if d.GetValue() != "" {
		f.text("value", d.GetValue())
	}
	if d.GetRateLimit() != nil {
		limit := mapping(f.At.File)
		limit.limit(d.GetRateLimit())
		f.add("rate_limit", limit.Value)
	}
	f.flag("shadow_mode", d.GetShadowMode())
	f.flag("quota_mode", d.GetQuotaMode())
	f.flag("detailed_metric", d.GetDetailedMetric())
	if d.GetMetadata() != nil {
		// Only the fields in metadata.rls can be wrong.
		f.add("metadata", structure(f.At.File+".metadata.rls", d.GetMetadata()))
	}
}

// limit adds the fields of a limit. An unlimited limit needs neither a unit nor a
// number.
func (f *fields) limit(l *ratelimit.RateLimitPolicy) {
	if l.GetUnit() != ratelimit.RateLimitUnit_UNKNOWN || !l.GetUnlimited() {
		f.text("unit", l.GetUnit().String())
	}
	if l.GetRequestsPerUnit() != 0 || !l.GetUnlimited() {
		f.add("requests_per_unit", number(f.At, float64(l.GetRequestsPerUnit())))
	}
	f.flag("unlimited", l.GetUnlimited())
	if l.GetName() != "" {
		f.text("name", l.GetName())
	}
	replaces := make([]document.Value, len(l.GetReplaces()))
	for i, r := range l.GetReplaces() {
		item := mapping(f.At.File)
		item.text("name", r.GetName())
		replaces[i] = item.Value
	}
	f.list("replaces", replaces)
}

// structure is a struct with its keys in order.
func structure(path string, s *structpb.Struct) document.Value {
	f := mapping(path)
	for _, key := range slices.Sorted(maps.Keys(s.GetFields())) {
		f.add(key, value(path, s.GetFields()[key]))
	}
	return f.Value
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
