package rules

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// text is any scalar, as it is written. Null is "".
var text = fields.Form[string]{Name: "text", Schema: Schema{"type": []string{"string", "integer", "boolean", "null"}}, Read: fields.Text.Read}

// required is a text that must not be empty: the reader of the mapping reports an
// empty one.
var required = fields.Form[string]{Name: "text", Schema: Schema{"type": []string{"string", "integer", "boolean"}, "minLength": 1}, Read: fields.Text.Read}

// boolean is true or false. Null is false.
var boolean = fields.Form[bool]{Name: "true or false", Schema: Schema{"type": []string{"boolean", "null"}}, Read: func(r *fields.Reader, v *document.Value) (bool, bool) {
	if v.Kind != document.Bool && v.Kind != document.Null {
		r.Problem(v.At, "must be true or false, not %s", v.Describe())
		return false, false
	}
	return v.Meaning() == true, true
}}

// count is a whole number of least to 2^32 - 1. Null is 0.
func count(least uint32) fields.Form[uint32] { return between(least, math.MaxUint32) }

// between is a whole number of least to most. Null is 0.
func between(least, most uint32) fields.Form[uint32] {
	types := []string{"integer"}
	if least == 0 {
		types = append(types, "null")
	}
	schema := Schema{"type": types, "minimum": least, "maximum": most}
	return fields.Form[uint32]{Name: fmt.Sprintf("%d to %d", least, most), Schema: schema, Read: func(r *fields.Reader, v *document.Value) (uint32, bool) {
		n, _ := v.Meaning().(int64)
		switch {
		case v.Kind != document.Int && v.Kind != document.Null:
			r.Problem(v.At, "must be a whole number, not %s", v.Describe())
		case n >= 0 && n < int64(least) && most == math.MaxUint32:
			r.Problem(v.At, "must be at least %d", least)
		case n < int64(least) || n > int64(most):
			r.Problem(v.At, "must be between %d and %d, not %s", least, most, v.Text)
		default:
			return uint32(n), true
		}
		return 0, false
	}}
}

// ranged is a form with another name in documents, which has the range of its values.
func ranged[V any](name string, form fields.Form[V]) fields.Form[V] {
	form.Name = name
	return form
}

// parsed is a text that parse reads. The errors of parse are the problems.
func parsed[V any](name string, schema Schema, parse func(text string) (V, error)) fields.Form[V] {
	return fields.Form[V]{Name: name, Schema: schema, Read: func(r *fields.Reader, v *document.Value) (V, bool) {
		text, _ := fields.Text.Read(r, v)
		x, err := parse(text)
		if err != nil {
			r.Problem(v.At, "%v", err)
		}
		return x, err == nil
	}}
}

// word is one of names. The index of a name is the constant that it stands for; what
// names the field in messages.
func word[V ~uint8](what, name string, names []string) fields.Form[V] {
	return parsed(name, Schema{"enum": names}, func(text string) (V, error) {
		i := slices.Index(names, text)
		if i < 0 {
			return 0, fmt.Errorf("unknown %s %q%s", what, text, spelling.Suggest(text, names))
		}
		return V(i), nil
	})
}

// charges are the names of the charges that rules can have.
var charges = []string{descriptors.ChargeAlways.String(), descriptors.ChargeAdmitted.String()}

var (
	charge   = word[descriptors.Charge]("charge", strings.Join(charges, ", "), charges)
	policy   = word[descriptors.Policy]("policy", strings.Join(descriptors.PolicyNames(), ", "), descriptors.PolicyNames())
	strategy = word[algorithms.Strategy]("strategy", "a name", algorithms.Names())
)

const windowFromFirstHit, windowCalendar = "from_first_hit", "calendar"

var windows = []string{windowFromFirstHit, windowCalendar}

// window is from_first_hit or calendar.
func window() fields.Type[target] {
	of := fields.With(word[uint8]("window", strings.Join(windows, ", "), windows), func(t target, i uint8) {
		t.limit.spec.FromFirstHit, t.limit.spec.Calendar.On = i == 0, i == 1
	})
	of.Append = func(b []byte, t target) []byte {
		switch {
		case t.limit.spec.FromFirstHit:
			return append(b, windowFromFirstHit...)
		case t.limit.spec.Calendar.On:
			return append(b, windowCalendar...)
		}
		return b
	}
	return of
}

// onExpiry is keep or give_back.
func onExpiry() fields.Type[target] {
	names := []string{"keep", "give_back"}
	of := fields.With(word[uint8]("on_expiry", strings.Join(names, ", "), names), func(t target, i uint8) {
		t.reserve.GiveBack = i == 1
	})
	of.Append = func(b []byte, t target) []byte {
		if t.reserve.GiveBack {
			return append(b, names[1]...)
		}
		return append(b, names[0]...)
	}
	return of
}

// timezone is the name of a time zone.
var timezone = parsed("a time zone", Schema{"enum": algorithms.Zones()}, func(text string) (string, error) {
	zones := algorithms.Zones()
	if _, known := slices.BinarySearch(zones, text); known {
		return text, nil
	}
	if text == time.Local.String() {
		return "", errors.New("must not be Local, the time zone of the machine, in which processes may differ; want a name such as Europe/Berlin, or UTC")
	}
	nearest := spelling.Nearest(text, zones)
	for _, zone := range zones {
		if nearest == "" && strings.EqualFold(path.Base(zone), text) { // berlin
			nearest = zone
		}
	}
	if nearest != "" {
		return "", fmt.Errorf("unknown time zone %q; did you mean %q?", text, nearest)
	}
	return "", fmt.Errorf("unknown time zone %q; want a name of the IANA database, such as Europe/Berlin", text)
})

var (
	weekdays = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
	months   = []string{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"}
)

// counted is one of names, counted from 1; 0 is not given.
func counted(what string, names []string, at func(target) *uint8) fields.Type[target] {
	form := word[uint8](what, names[0]+" to "+names[len(names)-1], names)
	of := fields.With(form, func(t target, n uint8) { *at(t) = n + 1 })
	of.Append = func(b []byte, t target) []byte { return append(b, slices.Concat([]string{""}, names)[*at(t)]...) }
	return of
}

// duration is a duration above 0.
var duration = lasting("a duration", 1, math.MaxInt64, "above 0 such as 500ms or 1.5s")

// lasting is a duration from least to most. want is the range with an example.
func lasting(name string, least, most time.Duration, want string) fields.Form[time.Duration] {
	const pattern = `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`
	return parsed(name, Schema{"type": "string", "pattern": pattern}, func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most {
			return 0, fmt.Errorf("must be a duration %s, not %q", want, text)
		}
		return d, nil
	})
}

// percent is a percentage above 0%.
var percent = parsed("a percentage", Schema{"type": "string", "pattern": `^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?%$`}, algorithms.ParsePercent)

// poolName is the name of a pool.
type poolName string

// planName is the name of a plan.
type planName string

// nameOf is a name of the domain, of a pool or a plan.
func nameOf[V ~string](one string) fields.Form[V] {
	return parsed("a name in `"+one+"s`", required.Schema, func(text string) (V, error) {
		if text == "" {
			return "", errors.New("must not be empty; it is the name of a " + one)
		}
		return V(text), nil
	})
}

// percentFrom1 is a percentage from 1% to most, which name says.
func percentFrom1(name string, most algorithms.Percent, example string) fields.Form[algorithms.Percent] {
	return parsed(name, percent.Schema, func(text string) (algorithms.Percent, error) {
		p, err := algorithms.ParsePercent(text)
		if err != nil || p < algorithms.Whole/100 || p > most {
			return 0, fmt.Errorf("must be a percentage from %s, such as %s, not %q", name, example, text)
		}
		return p, nil
	})
}

// enforced is descriptors.Limit.WatchedPart, written as the rest: the part of the keys for which
// a limit is enforced.
type enforced algorithms.Percent

// String is the value of rollout.
func (e *enforced) String() string { return (algorithms.Whole - algorithms.Percent(*e)).String() }

// rollout is a percentage from 0% to 100%.
var rollout = parsed("0% to 100%", percent.Schema, func(text string) (enforced, error) {
	p, err := algorithms.ParseRollout(text)
	return enforced(algorithms.Whole - p), err
})

// debt is algorithms.Spec.Overdraft.
type debt uint64

// String is the value of overdraft.
func (d *debt) String() string {
	switch *d {
	case 0:
		return "false"
	case algorithms.FullOverdraft:
		return "true"
	}
	return strconv.FormatUint(uint64(*d), 10)
}

// overdraft is true, false, or a number of hits. Null is false.
var overdraft = fields.Form[debt]{
	Name: "true, or 1 to 4294967295", Schema: Schema{"type": []string{"boolean", "null", "integer"}, "minimum": 1, "maximum": uint32(math.MaxUint32)},
	Read: func(r *fields.Reader, v *document.Value) (debt, bool) {
		switch v.Kind {
		case document.Int:
			hits, ok := count(1).Read(r, v)
			return debt(hits), ok
		case document.Null, document.Bool:
			if v.Meaning() == true {
				return algorithms.FullOverdraft, true
			}
			return 0, true
		}
		r.Problem(v.At, "must be true, false, or a number of hits of at least 1, not %s", v.Describe())
		return 0, false
	},
}

// switched is true, which stands for whole, false, or a mapping with the fields of a place,
// whose target into makes. Null is false.
func switched[V any](in place, whole V, into func(*V) target, at func(target) *V) fields.Type[target] {
	return fields.Type[target]{
		Name: "true, or a mapping", Schema: Schema{"type": []string{"boolean", "null", "object"}, "$ref": "#/$defs/" + in.String()},
		Set: func(r *fields.Reader, t target, v *document.Value) {
			x := whole
			switch {
			case v.Kind == document.Map:
				t.mapping(v, in, into(&x))
			case v.Kind == document.Null || v.Kind == document.Bool && v.Meaning() == false:
				x = *new(V)
			case v.Kind != document.Bool:
				r.Problem(v.At, "must be true, false, or a mapping with %s, not %s", strings.Join(names(func(f *field) bool { return f.in == in }), " and "), v.Describe())
				return
			}
			*at(t) = x
		},
		Append: func(b []byte, t target) []byte { return fmt.Append(b, *at(t)) },
	}
}

// lease is true, false, or a mapping. Null is false.
var lease = switched(inLease, algorithms.DefaultLease, func(l *algorithms.Lease) target { return target{lease: l} },
	func(t target) *algorithms.Lease { return &t.limit.spec.Lease })

// reserve is true, false, or a mapping. Null is false.
var reserve = switched(inReserve, algorithms.DefaultReserve, func(r *algorithms.Reserve) target { return target{reserve: r} },
	func(t target) *algorithms.Reserve { return &t.limit.spec.Reserve })

var listOfReplaces = fields.Type[target]{
	Name: "a list", Schema: listSchema("replaced"),
	Set: func(r *fields.Reader, t target, v *document.Value) {
		t.limit.replaces = nil
		for i, item := range t.list(v) {
			re := replaced{at: item.Position("name")}
			r.EnterItem(i)
			t.mapping(item, inReplaces, target{replaced: &re})
			r.Leave()
			t.limit.replaces = append(t.limit.replaces, re)
		}
	},
	Append: func(b []byte, t target) []byte { return fmt.Appendf(b, "%q", t.limit.Replaces) },
}

// listSchema is the schema of a list of mappings.
func listSchema(of string) Schema {
	return Schema{"type": []string{"array", "null"}, "items": Schema{"type": "object", "$ref": "#/$defs/" + of}}
}
