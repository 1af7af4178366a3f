package ruletest

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// facts are the parts of an answer, or of one of its statuses, that a test can expect.
type facts struct {
	code, rule, name         string
	limit, remaining         int64
	reset, retryAfter, delay time.Duration
	borrowed                 bool
	reservation              string
	headers, responseHeaders map[string]string // that thresholds add, by name in lower case
	thresholds               []any             // as dynamic metadata has them
}

const (
	codeOK   = "OK"
	codeOver = "OVER_LIMIT"
)

func factsOf(domain string, s *service.Status) facts {
	f := facts{code: codeOK, remaining: s.Remaining, borrowed: s.Borrowed, reservation: s.Reservation}
	if s.Denied {
		f.code = codeOver
	}
	switch {
	case s.Unlimited:
		f.rule, f.name = s.Rule.Path, s.Rule.Name
	case s.Shown != nil:
		f.rule, f.name, f.limit = s.Shown.Path(domain), s.Shown.Limit.Name, int64(s.Shown.Limit.Requests)
		f.reset, f.retryAfter, f.delay = s.Shown.Is.Reset, s.Shown.Is.RetryAfter, s.Shown.Is.Delay
	}
	return f
}

// headline has the facts of the answer: its own code and delay, and else those of
// the status that headers describe. Where no limit is enforced it is the first status
// with a limit or an unlimited rule, if there is one.
func headline(domain string, e *service.Outcome) facts {
	var f facts
	i := e.Headline
	for j := 0; i < 0 && j < len(e.Statuses); j++ {
		if s := &e.Statuses[j]; s.Shown != nil || s.Unlimited {
			i = j
		}
	}
	if i >= 0 {
		f = factsOf(domain, &e.Statuses[i])
	}
	f.code, f.delay, f.borrowed, f.reservation = codeOK, e.Delay, e.Borrowed(), e.Reservation()
	f.headers, f.responseHeaders = joined(e.Headers), joined(e.ResponseHeaders)
	f.thresholds = append([]any{}, e.Thresholds(domain)...)
	if e.Over {
		f.code = codeOver
	}
	return f
}

// joined are the headers by name in lower case. The values of equal names are joined, as a
// receiver may read them (RFC 9110, 5.3).
func joined(list []descriptors.Header) map[string]string {
	all := map[string]string{}
	for _, h := range list {
		name := strings.ToLower(h.Name)
		if before, again := all[name]; again {
			h.Value = before + ", " + h.Value
		}
		all[name] = h.Value
	}
	return all
}

// expectation has the fields that a test expects of an answer, or of one of its statuses.
type expectation struct {
	wanted   []wanted
	statuses []expectation // one for each descriptor; nil if nothing is expected of them
	line     int           // of statuses
}

// wanted is the expectation of one field.
type wanted struct {
	field string
	line  int
	want  any // for JSON
	// check returns the field's value, for JSON, and whether it is the wanted one.
	check func(*facts) (got any, holds bool)
}

var (
	code   = fields.Word([]string{codeOK, codeOver})
	number = fields.Integer[int64](0, math.MaxUint32)
)

var statusFields = []fields.Field[*expectation]{
	{Name: "code", What: "OK or OVER_LIMIT", Type: want("code", code, func(f *facts) string { return f.code })},
	{Name: "rule", What: "the path of the limit that the reply describes, such as shop.plan_free.user; \"\" if there is none", Type: want("rule", fields.Text, func(f *facts) string { return f.rule })},
	{Name: "name", What: "the name of that limit", Type: want("name", fields.Text, func(f *facts) string { return f.name })},
	{Name: "limit", What: "its requests_per_unit", Type: wantBounds("limit", number, func(f *facts) int64 { return f.limit })},
	{Name: "remaining", What: "the hits that still fit", Type: wantBounds("remaining", number, func(f *facts) int64 { return f.remaining })},
	{Name: "reset", What: "the exact time until the full quota is back, or until a fixed window ends", Type: wantBounds("reset", fields.Duration, func(f *facts) time.Duration { return f.reset })},
	{Name: "retry_after", What: "the exact time after a denial until the same cost would pass; 0s if it has passed", Type: wantBounds("retry_after", fields.Duration, func(f *facts) time.Duration { return f.retryAfter })},
	{Name: "delay", What: "the exact time for which the answer is held: the wait in a queue or, not of a status, the delay of a threshold", Type: wantBounds("delay", fields.Duration, func(f *facts) time.Duration { return f.delay })},
	{Name: "borrowed", What: "true if hits are charged to a pool", Type: want("borrowed", fields.Bool, func(f *facts) bool { return f.borrowed })},
	{Name: "reservation", What: "what became of a reservation: held, settled or unchanged; \"\" if there is none", Type: want("reservation", fields.Word([]string{"held", "settled", "unchanged", ""}), func(f *facts) string { return f.reservation })},
}

var expectFields = append(statusFields[:len(statusFields):len(statusFields)],
	fields.Field[*expectation]{
		Name: "headers", What: "the headers that thresholds add to the request upstream, all of them; {} is none",
		Type: want("headers", headers, func(f *facts) map[string]string { return f.headers }),
	},
	fields.Field[*expectation]{
		Name: "response_headers", What: "the headers that thresholds add to the response, all of them; {} is none",
		Type: want("response_headers", headers, func(f *facts) map[string]string { return f.responseHeaders }),
	},
	fields.Field[*expectation]{
		Name: "thresholds", What: "the thresholds that apply, all of them, as dynamic metadata has them: rule, at and metadata; [] is none",
		Type: want("thresholds", items, func(f *facts) []any { return f.thresholds }),
	},
	fields.Field[*expectation]{
		Name: "statuses", What: "the status of each descriptor, in their order",
		Type: fields.Type[*expectation]{
			Schema: statusesForm.Schema,
			Set: func(r *fields.Reader, e *expectation, v *document.Value) {
				e.line = v.At.Line
				e.statuses, _ = statusesForm.Read(r, v)
			},
		},
	})

// statusesForm reads the expectation of each status; {} expects nothing.
var statusesForm = fields.List("statuses", fields.Object(statusFields, func(e *expectation) *expectation { return e }))

// expectType reads the expectation of an answer.
var expectType = fields.Type[*step]{
	Schema: withLeast(fields.ObjectSchema(expectFields)),
	Set: func(r *fields.Reader, s *step, v *document.Value) {
		before := len(r.Problems)
		fields.Mapping(r, expectFields, &s.expect, v)
		if len(r.Problems) == before && len(s.expect.wanted) == 0 && s.expect.statuses == nil {
			r.Problem(v.At, "must have at least one field, such as code: OK")
		}
	},
}

func withLeast(s fields.Schema) fields.Schema {
	s["minProperties"] = 1
	return s
}

// want is the type of a value that the field must be equal to.
func want[V any](field string, form fields.Form[V], of func(*facts) V) fields.Type[*expectation] {
	return fields.Type[*expectation]{
		Schema: form.Schema,
		Set: func(r *fields.Reader, e *expectation, v *document.Value) {
			if want, ok := form.Read(r, v); ok {
				holds := func(f *facts) (any, bool) { return of(f), reflect.DeepEqual(of(f), want) }
				e.wanted = append(e.wanted, wanted{field, v.At.Line, want, holds})
			}
		},
	}
}

// headers is a mapping of the names of headers to their values.
var headers = fields.Form[map[string]string]{
	Schema: fields.Schema{"type": "object", "additionalProperties": fields.Text.Schema},
	Read: func(r *fields.Reader, v *document.Value) (map[string]string, bool) {
		if v.Kind != document.Map {
			r.Problem(v.At, "must be a mapping of names to values, not %s", v.Kind)
			return nil, false
		}
		all := map[string]string{}
		for i := 0; i < len(v.Content); i += 2 {
			r.Enter(v.Content[i].Text)
			all[strings.ToLower(v.Content[i].Text)], _ = fields.Text.Read(r, &v.Content[i+1])
			r.Leave()
		}
		return all, true
	},
}

// items is a list of mappings, as dynamic metadata have it.
var items = fields.Form[[]any]{
	Schema: fields.Schema{"type": "array", "items": fields.Schema{"type": "object", "required": []string{"rule", "at"}}},
	Read: func(r *fields.Reader, v *document.Value) ([]any, bool) {
		if v.Kind != document.List || slices.ContainsFunc(v.Content, func(item document.Value) bool { return !item.Has("rule") || !item.Has("at") }) {
			r.Problem(v.At, "must be a list of mappings with rule, at and the metadata, such as [{rule: shop.user, at: 80%%}]; [] is none")
			return nil, false
		}
		return plain(v).([]any), true
	},
}

// plain is v without its positions.
func plain(v *document.Value) any {
	switch v.Kind {
	case document.List:
		list := make([]any, len(v.Content))
		for i := range list {
			list[i] = plain(&v.Content[i])
		}
		return list
	case document.Map:
		pairs := map[string]any{}
		for i := 0; i < len(v.Content); i += 2 {
			pairs[v.Content[i].Text] = plain(&v.Content[i+1])
		}
		return pairs
	}
	return v.Meaning()
}

// shown is a value as a message shows it: a text in quotes where it is empty or has bytes
// that a terminal would act on.
func shown(value any) string {
	text := fmt.Sprint(value)
	if q := fmt.Sprintf("%q", text); text == "" || q != `"`+text+`"` {
		return q
	}
	return text
}

// documentOf is a value for JSON.
func documentOf(value any) any {
	if d, ok := value.(time.Duration); ok {
		return short(d)
	}
	return value
}

// short is a duration as people write it: 1m instead of 1m0s.
func short(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// bounds are the least and the most that a value may be, and those of them that the test
// has, for JSON.
type bounds[N ~int64] struct {
	least, most N
	written     writtenBounds
}

type writtenBounds map[string]any

const atLeast, atMost = "at_least", "at_most"

// String is the bounds in words.
func (w writtenBounds) String() string {
	var texts []string
	for _, name := range []string{atLeast, atMost} {
		if bound, ok := w[name]; ok {
			texts = append(texts, strings.ReplaceAll(name, "_", " ")+" "+fmt.Sprint(bound))
		}
	}
	return strings.Join(texts, " and ")
}

// wantBounds is the type of a value, or of its bounds {at_least: X, at_most: Y}.
func wantBounds[N ~int64](field string, form fields.Form[N], of func(*facts) N) fields.Type[*expectation] {
	table := []fields.Field[*bounds[N]]{
		{Name: atLeast, What: "the least value that holds", Type: fields.With(form, func(b *bounds[N], n N) {
			b.least, b.written[atLeast] = n, documentOf(n)
		})},
		{Name: atMost, What: "the greatest value that holds", Type: fields.With(form, func(b *bounds[N], n N) {
			b.most, b.written[atMost] = n, documentOf(n)
		})},
	}
	return fields.Type[*expectation]{
		Schema: fields.Schema{"anyOf": []any{form.Schema, withLeast(fields.ObjectSchema(table))}},
		Set: func(r *fields.Reader, e *expectation, v *document.Value) {
			b := bounds[N]{math.MinInt64, math.MaxInt64, writtenBounds{}}
			var want any = b.written
			before := len(r.Problems)
			if v.Kind == document.Map {
				fields.Mapping(r, table, &b, v)
			} else {
				n, _ := form.Read(r, v)
				b.least, b.most, want = n, n, documentOf(n)
			}
			switch {
			case len(r.Problems) > before:
				return
			case v.Kind == document.Map && len(b.written) == 0:
				r.Problem(v.At, "must have at_least or at_most")
			case b.least > b.most:
				r.Problem(v.At, "at_least is greater than at_most, so no value holds")
			}
			holds := func(f *facts) (any, bool) { return documentOf(of(f)), of(f) >= b.least && of(f) <= b.most }
			e.wanted = append(e.wanted, wanted{field, v.At.Line, want, holds})
		},
	}
}
