package xds

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"example.org/rls/pkg/descriptors"
)

// maxDepth bounds how deep descriptors may stand in each other.
const maxDepth = 1000

// maxSimpleKey is how long a key can be without being marked as one (YAML 1.1,
// 7.3.3: 1024 characters, of which one may take ten to write).
const maxSimpleKey = 100

// decode reads a resource. Its error is that it is no RateLimitConfig at all;
// what is wrong with the rules in it is for whoever loads the file.
func decode(resource *anypb.Any) (descriptors.File, error) {
	var config ratelimit.RateLimitConfig
	if err := resource.UnmarshalTo(&config); err != nil {
		return descriptors.File{}, fmt.Errorf("decode %q: %w", resource.GetTypeUrl(), err)
	}
	return convert(&config)
}

// convert writes a resource in the language of rule files, so that rules mean
// the same wherever they come from.
func convert(config *ratelimit.RateLimitConfig) (descriptors.File, error) {
	name := config.GetName()
	if name == "" {
		name = "unnamed resource"
	}
	// Room for rules as they usually are: four bytes of text for one of the
	// message, and twenty on a line.
	size := proto.Size(config)
	w := &writer{place: name, text: make([]byte, 0, 4*size), places: make([]string, 0, size/5)}
	w.quoted(0, "domain: ", config.GetDomain())
	if err := w.descriptors(0, name+": descriptors", config.GetDescriptors()); err != nil {
		return descriptors.File{}, fmt.Errorf("%s: %w", name, err)
	}
	return descriptors.File{Name: name, Content: w.text, Places: w.places}, nil
}

// writer writes rules line by line, in the plain YAML that loads fast, and
// notes what stands on each.
type writer struct {
	text   []byte
	places []string
	place  string // of the next line
}

// begin writes the first words of a line, and end ends it.
func (w *writer) begin(indent int, words string) {
	for range indent {
		w.text = append(w.text, ' ')
	}
	w.text = append(w.text, words...)
}

func (w *writer) end() {
	w.text = append(w.text, '\n')
	w.places = append(w.places, w.place)
}

func (w *writer) line(indent int, words string) {
	w.begin(indent, words)
	w.end()
}

// quoted writes a string in double quotes.
func (w *writer) quoted(indent int, words, value string) {
	w.begin(indent, words)
	w.text = appendQuoted(w.text, value)
	w.end()
}

// flag writes a boolean that is false unless it is there.
func (w *writer) flag(indent int, words string, set bool) {
	if set {
		w.line(indent, words)
	}
}

func (w *writer) descriptors(indent int, path string, list []*ratelimit.RateLimitDescriptor) error {
	const step = 2
	if len(list) == 0 {
		return nil
	}
	if indent > maxDepth*step {
		return fmt.Errorf("descriptors stand more than %d deep in each other", maxDepth)
	}
	w.line(indent, "descriptors:")
	for i, d := range list {
		if i%64 == 0 {
			runtime.Gosched() // callers go first, as when the rules are loaded
		}
		path := path + "[" + strconv.Itoa(i) + "]"
		w.place = path
		w.descriptor(indent, indent+step, path, d)
		if err := w.descriptors(indent+step, path+".descriptors", d.GetDescriptors()); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) descriptor(dash, indent int, path string, d *ratelimit.RateLimitDescriptor) {
	w.quoted(dash, "- key: ", d.GetKey())
	if d.GetValue() != "" {
		w.quoted(indent, "value: ", d.GetValue())
	}
	if d.GetRateLimit() != nil {
		w.line(indent, "rate_limit:")
		w.limit(indent+2, d.GetRateLimit())
	}
	w.flag(indent, "shadow_mode: true", d.GetShadowMode())
	w.flag(indent, "quota_mode: true", d.GetQuotaMode())
	w.flag(indent, "detailed_metric: true", d.GetDetailedMetric())
	if d.GetMetadata() != nil {
		w.place = path + ".metadata.rls" // nothing else in it can be wrong
		w.begin(indent, "metadata: ")
		w.text = appendStruct(w.text, d.GetMetadata())
		w.end()
		w.place = path
	}
}

// limit writes what a limit says. A unit or a number that it need not have is
// written only if there is one.
func (w *writer) limit(indent int, l *ratelimit.RateLimitPolicy) {
	if l.GetUnit() != ratelimit.RateLimitUnit_UNKNOWN || !l.GetUnlimited() {
		w.quoted(indent, "unit: ", l.GetUnit().String())
	}
	if l.GetRequestsPerUnit() != 0 || !l.GetUnlimited() {
		w.begin(indent, "requests_per_unit: ")
		w.text = strconv.AppendUint(w.text, uint64(l.GetRequestsPerUnit()), 10)
		w.end()
	}
	w.flag(indent, "unlimited: true", l.GetUnlimited())
	if l.GetName() != "" {
		w.quoted(indent, "name: ", l.GetName())
	}
	if len(l.GetReplaces()) > 0 {
		w.line(indent, "replaces:")
		for _, r := range l.GetReplaces() {
			w.quoted(indent, "- name: ", r.GetName())
		}
	}
}

// appendQuoted writes a string in double quotes. What YAML gives a meaning or
// does not allow is escaped.
func appendQuoted(text []byte, s string) []byte {
	text = append(text, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			text = append(text, '\\', byte(c))
		case c >= ' ' && c <= '~':
			text = append(text, byte(c))
		default:
			text = fmt.Appendf(text, `\U%08x`, c)
		}
	}
	return append(text, '"')
}

func appendStruct(text []byte, s *structpb.Struct) []byte {
	text = append(text, '{')
	for i, key := range slices.Sorted(maps.Keys(s.GetFields())) {
		if i > 0 {
			text = append(text, ", "...)
		}
		if len(key) > maxSimpleKey {
			text = append(text, "? "...)
		}
		text = appendQuoted(text, key)
		text = append(text, ": "...)
		text = appendValue(text, s.GetFields()[key])
	}
	return append(text, '}')
}

func appendValue(text []byte, v *structpb.Value) []byte {
	switch v := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return strconv.AppendBool(text, v.BoolValue)
	case *structpb.Value_NumberValue:
		return appendNumber(text, v.NumberValue)
	case *structpb.Value_StringValue:
		return appendQuoted(text, v.StringValue)
	case *structpb.Value_StructValue:
		return appendStruct(text, v.StructValue)
	case *structpb.Value_ListValue:
		text = append(text, '[')
		for i, item := range v.ListValue.GetValues() {
			if i > 0 {
				text = append(text, ", "...)
			}
			text = appendValue(text, item)
		}
		return append(text, ']')
	}
	return append(text, "null"...)
}

// appendNumber writes a whole number without a point or an exponent, as far as
// it has one meaning.
func appendNumber(text []byte, f float64) []byte {
	const exact = 1 << 53
	switch {
	case math.IsNaN(f):
		return append(text, ".nan"...)
	case math.IsInf(f, 0):
		if f < 0 {
			text = append(text, '-')
		}
		return append(text, ".inf"...)
	case f == math.Trunc(f) && math.Abs(f) <= exact:
		return strconv.AppendInt(text, int64(f), 10)
	}
	return strconv.AppendFloat(text, f, 'g', -1, 64)
}
