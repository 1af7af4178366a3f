package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/descriptors"
)

var listOfThresholds = fields.Type[target]{
	Name: "a list", Schema: listSchema("threshold"),
	Set: func(r *fields.Reader, t target, v *document.Value) {
		var list []descriptors.Threshold
		for i, item := range t.list(v) {
			var one descriptors.Threshold
			r.EnterItem(i)
			t.mapping(item, inThreshold, target{threshold: &one})
			same := func(other descriptors.Threshold) bool { return other.At == one.At && one.At > 0 }
			switch first := slices.IndexFunc(list, same); {
			case !item.Has("at"):
				r.ProblemOf("at", item.At, "is missing; the used part of the limit from which the threshold applies, such as 80%%")
			case first >= 0:
				r.ProblemOf("at", item.Position("at"), "%s is the at of item %d, too; put them together", one.At, first)
			}
			_, metadata := item.Pair("metadata")
			for _, name := range []string{"rule", "at"} {
				if metadata != nil && metadata.Has(name) {
					key, _ := metadata.Pair(name)
					r.ProblemOf("metadata."+name, key.At, "stands for the %s of the threshold in dynamic metadata; choose another name", name)
				}
			}
			r.Leave()
			list = append(list, one)
		}
		slices.SortFunc(list, func(a, b descriptors.Threshold) int { return cmp.Compare(a.At, b.At) })
		t.limit.Thresholds = list
	},
	Append: func(b []byte, t target) []byte {
		var items []string
		for i := range t.limit.Thresholds {
			one := printGiven(inThreshold, target{threshold: &t.limit.Thresholds[i]}, target{threshold: new(descriptors.Threshold)})
			items = append(items, "{"+strings.TrimPrefix(one, ", ")+"}")
		}
		return append(b, "["+strings.Join(items, ", ")+"]"...)
	},
}

// reserved are the headers that belong to a connection or frame a message, and the one that
// says where a request goes.
var reserved = []string{
	"connection", "content-length", "host", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// headers is a mapping of the names of headers to their values.
func headers(at func(*descriptors.Threshold) *[]descriptors.Header) fields.Type[target] {
	return fields.Type[target]{
		Name: "a mapping", Schema: Schema{
			"type":                 []string{"object", "null"},
			"propertyNames":        Schema{"pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", "not": Schema{"pattern": inAnyCase(reserved...)}},
			"additionalProperties": Schema{"type": []string{"string", "number", "boolean"}, "pattern": `^[^\x00-\x08\x0a-\x1f\x7f]*$`},
		},
		Set: func(r *fields.Reader, t target, v *document.Value) {
			if v.Kind != document.Map && v.Kind != document.Null {
				r.Problem(v.At, "must be a mapping of names to values, not %s", v.Describe())
				return
			}
			var list []descriptors.Header
			var names []*document.Value
			for i := 0; i < len(v.Content); i += 2 {
				name := &v.Content[i]
				r.Enter(name.Text)
				h, ok := t.header(name, &v.Content[i+1])
				same := slices.IndexFunc(list, func(other descriptors.Header) bool { return strings.EqualFold(other.Name, h.Name) })
				switch {
				case !ok: // reported
				case same < 0:
					list, names = append(list, h), append(names, name)
				case !v.Merged(names[same]):
					r.Problem(name.At, "the header is repeated; write it once")
				default:
					list[same], names[same] = h, name
				}
				r.Leave()
			}
			*at(t.threshold) = list
		},
		Append: func(b []byte, t target) []byte {
			var pairs []string
			for _, h := range *at(t.threshold) {
				pairs = append(pairs, fmt.Sprintf("%s: %q", h.Name, h.Value))
			}
			return append(b, "{"+strings.Join(pairs, ", ")+"}"...)
		},
	}
}

// header reads a header. It reports what is wrong with its name or value, and then returns
// false.
func (r *reader) header(name, value *document.Value) (h descriptors.Header, ok bool) {
	before := len(r.Problems)
	switch {
	case name.Kind == document.Wrong:
		r.Problem(name.At, "%s", name.Text)
	case strings.HasPrefix(name.Text, ":"):
		r.Problem(name.At, "is a pseudo-header, which cannot be added; choose a header such as x-quota-warning")
	case name.Kind == document.List, name.Kind == document.Map, !httpguts.ValidHeaderFieldName(name.Text):
		r.Problem(name.At, "is not the name of a header: letters, digits and any of !#$%%&'*+-.^_`|~")
	case slices.Contains(reserved, strings.ToLower(name.Text)):
		r.Problem(name.At, "cannot be added: it says where a message goes or ends; choose a header such as x-quota-warning")
	}
	switch value.Kind {
	case document.Wrong:
		r.Problem(value.At, "%s", value.Text)
	case document.Null, document.List, document.Map:
		r.Problem(value.At, "must be the value of a header, which is a text, not %s", value.Describe())
	default:
		if !httpguts.ValidHeaderFieldValue(value.Text) || !utf8.ValidString(value.Text) {
			r.Problem(value.At, "is not the value of a header: it has a line break, another control character, or bytes that are not UTF-8")
		}
	}
	return descriptors.Header{Name: name.Text, Value: value.Text}, len(r.Problems) == before
}
