// Package ask reads requests that people write: in test files, and as arguments of
// commands.
//
// In a file a request is written as the page /json takes it, with the names of protobuf's
// JSON in snake_case or camelCase, or shorter:
//
//	{domain: shop, descriptors: [{plan: free, user: ann}], hits: 1}
//
// A descriptor with a list of entries is the long form. Any other mapping is the
// short form: its keys and values are the entries, in their order.
package ask

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// request is a request as written.
type request struct {
	service.Request
	hits       *int64 // below 0 for a refund
	hitsAddend *int64
}

var requestFields = []fields.Field[*request]{
	{Name: "domain", Required: true, What: "the domain of the rules",
		Type: fields.At(fields.Name, func(q *request) *string { return &q.Domain })},
	{Name: "descriptors", Required: true, What: "the descriptors: {plan: free, user: ann}, or the long form with entries",
		Type: fields.At(fields.List("descriptors", descriptorType), func(q *request) *[]service.Descriptor { return &q.Descriptors })},
	{Name: "hits", What: "the cost, 1 by default; 0 charges nothing, and -3 gives 3 hits back",
		Needs: fields.Schema{"properties": fields.Schema{"hits_addend": false, "hitsAddend": false}},
		Type:  fields.With(fields.Integer[int64](-math.MaxUint32, math.MaxUint32), func(q *request, n int64) { q.hits = &n })},
	{Name: "hits_addend", Other: "hitsAddend", What: "the cost as in the message of Envoy; 0 is 1",
		Type: fields.With(fields.Integer[int64](0, math.MaxUint32), func(q *request, n int64) { q.hitsAddend = &n })},
}

// Schema is the JSON Schema of a request.
func Schema() fields.Schema { return fields.ObjectSchema(requestFields) }

// Read reads a request, and reports its problems to r.
func Read(r *fields.Reader, v *document.Value) service.Request {
	var q request
	before := len(r.Problems)
	fields.Mapping(r, requestFields, &q, v)
	if q.hits != nil && q.hitsAddend != nil {
		r.ProblemOf("hits", v.At, "excludes hits_addend; write one of them")
	}
	switch { // puts the hits where the service takes them
	case len(r.Problems) > before:
	case q.hitsAddend != nil:
		q.Hits = uint32(*q.hitsAddend)
	case q.hits == nil:
	case *q.hits > 0:
		q.Hits = uint32(*q.hits)
	default:
		hits := uint64(-*q.hits)
		for i := range q.Descriptors {
			if d := &q.Descriptors[i]; d.Hits == nil {
				d.Hits, d.Refund = &hits, d.Refund || hits > 0
			}
		}
	}
	return q.Request
}

// descriptorType is a descriptor in one of its forms.
var descriptorType = fields.Type[*service.Descriptor]{
	Schema: fields.Schema{"anyOf": []any{
		fields.ObjectSchema(descriptorFields),
		fields.Schema{
			"type":                 "object",
			"additionalProperties": fields.Schema{"type": []string{"string", "number", "boolean", "null"}},
		},
	}},
	Set: func(r *fields.Reader, d *service.Descriptor, v *document.Value) {
		if _, list := v.Pair("entries"); v.Kind == document.Map && list != nil && list.Kind == document.List {
			fields.Mapping(r, descriptorFields, d, v)
		} else {
			d.Entries = shortEntries(r, v)
		}
	},
}

// shortEntries reads the short form. A key that is merged (<<) and written has the
// value that is written.
func shortEntries(r *fields.Reader, v *document.Value) []descriptors.Entry {
	if v.Kind != document.Map {
		r.Problem(v.At, "must be a mapping of keys to values, or a mapping with a list of entries, not %s", v.Kind)
		return nil
	}
	list := make([]descriptors.Entry, 0, len(v.Content)/2)
	merged := 0 // entries of list that come from a merge
	for i := 0; i < len(v.Content); i += 2 {
		key, value := &v.Content[i], &v.Content[i+1]
		e := descriptors.Entry{Key: key.Text}
		switch {
		case key.Kind == document.Wrong || key.Kind == document.List || key.Kind == document.Map:
			r.Problem(key.At, "a key must be a string, not %s", key.Kind)
			continue
		case key.Text == "":
			r.Problem(key.At, "a key must not be empty")
			continue
		case value.Kind == document.List || value.Kind == document.Map || value.Kind == document.Wrong:
			r.ProblemOf(key.Text, value.At, "must be a string, not %s; a descriptor is {plan: free, user: ann}, or {entries: [{key: plan, value: free}]}", value.Kind)
			continue
		case value.Kind != document.Null:
			e.Value = value.Text
		}
		before := slices.IndexFunc(list[:merged], func(m descriptors.Entry) bool { return m.Key == e.Key })
		switch {
		case before >= 0:
			list[before] = e
			continue
		case v.Merged(key):
			merged = len(list) + 1
		}
		list = append(list, e)
	}
	return list
}

var descriptorFields = []fields.Field[*service.Descriptor]{
	{Name: "entries", Required: true, What: "the entries: [{key: plan, value: free}]",
		Type: fields.At(fields.List("entries", fields.Object(entryFields, func(e *descriptors.Entry) *descriptors.Entry { return e })),
			func(d *service.Descriptor) *[]descriptors.Entry { return &d.Entries })},
	{Name: "limit", What: "a limit in place of the rule's",
		Type: fields.Object(limitFields, func(d *service.Descriptor) *service.Override {
			d.Limit = &service.Override{Multiplier: 1}
			return d.Limit
		})},
	{Name: "hits_addend", Other: "hitsAddend", What: "the cost of this descriptor; 0 charges nothing",
		Type: fields.With(fields.Integer[uint64](0, math.MaxInt64), func(d *service.Descriptor, n uint64) { d.Hits = &n })},
	{Name: "is_negative_hits", Other: "isNegativeHits", What: "gives the hits back",
		Type: fields.At(fields.Bool, func(d *service.Descriptor) *bool { return &d.Refund })},
}

var entryFields = []fields.Field[*descriptors.Entry]{
	{Name: "key", Required: true, What: "the key", Type: fields.At(fields.Name, func(e *descriptors.Entry) *string { return &e.Key })},
	{Name: "value", What: "the value", Type: fields.At(fields.Text, func(e *descriptors.Entry) *string { return &e.Value })},
}

var limitFields = []fields.Field[*service.Override]{
	{Name: "requests_per_unit", Other: "requestsPerUnit", What: "the hits that fit a window",
		Type: fields.At(fields.Integer[uint32](0, math.MaxUint32), func(l *service.Override) *uint32 { return &l.RequestsPerUnit })},
	{Name: "unit", Required: true, What: "the unit of the window, such as MINUTE", Type: unitType},
	{Name: "unit_multiplier", Other: "unitMultiplier", What: "the window is this many units",
		Type: fields.At(fields.Integer[uint32](1, math.MaxUint32), func(l *service.Override) *uint32 { return &l.Multiplier })},
}

// unitType is the name of a unit in any case, or its number in the message.
var unitType = fields.Type[*service.Override]{
	Schema: unitSchema(),
	Set: func(r *fields.Reader, l *service.Override, v *document.Value) {
		text, ok := fields.Text.Read(r, v)
		if !ok {
			return
		}
		l.Unit = descriptors.ParseUnit(text)
		if n, err := strconv.Atoi(text); err == nil && descriptors.Unit(n).Valid() {
			l.Unit = descriptors.Unit(n)
		}
		if l.Unit == descriptors.UnitUnknown {
			r.Problem(v.At, "unknown unit %q%s", text, spelling.Suggest(text, descriptors.UnitNames()))
		}
	},
}

func unitSchema() fields.Schema {
	names := descriptors.UnitNames()
	pattern := fmt.Sprintf("^(%s|[1-%d])$", fields.InAnyCase(names), len(names))
	for i, name := range names {
		names[i] = strings.ToUpper(name)
	}
	return fields.Schema{"type": []string{"string", "integer"}, "examples": names, "pattern": pattern, "minimum": 1, "maximum": len(names)}
}
