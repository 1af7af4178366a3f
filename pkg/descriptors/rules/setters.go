package rules

import (
	"fmt"
	"math"
	"strings"
	"time"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// target is where the fields of a mapping are written to. Which of its members
// is set depends on the mapping's place.
type target struct {
	file       *file
	descriptor *descriptor
	limit      *limit
	replaced   *replaced
	lease      *algorithms.Lease
}

// setter reads the values of a field.
type setter struct {
	typ    string // for docs/rules.md
	schema Schema // of the values that are right
	// free says that any value will do; its keys are not keys of the language.
	free bool
	set  func(r *reader, t target, v *Value, path string)
}

// text reads a string: any scalar, as it is written. Null is "".
func text(of func(target) *string) setter {
	return setter{typ: "text", schema: textSchema, set: func(r *reader, t target, v *Value, path string) { r.text(v, path, of(t)) }}
}

// required reads a string that must not be empty; that is left to who reads the
// mapping.
func required(of func(target) *string) setter {
	s := text(of)
	s.schema = nameSchema
	return s
}

// boolean reads true or false. Null is false.
func boolean(of func(target) *bool) setter {
	return setter{typ: "true or false", schema: booleanSchema, set: func(r *reader, t target, v *Value, path string) {
		if v.Kind != Bool && v.Kind != Null {
			r.problem(v.At, path, "must be true or false, not %s", v.describe())
			return
		}
		*of(t) = v.is == true
	}}
}

// count reads a whole number of least to 2^32 - 1. Null is 0.
func count(least uint32, of func(target) *uint32) setter {
	return setter{typ: fmt.Sprintf("%d to %d", least, uint32(math.MaxUint32)), schema: countSchema(least), set: func(r *reader, t target, v *Value, path string) {
		n, _ := v.is.(int64)
		switch {
		case v.Kind != Int && v.Kind != Null:
			r.problem(v.At, path, "must be a whole number, not %s", v.describe())
		case n < 0 || n > math.MaxUint32:
			r.problem(v.At, path, "must be between 0 and %d, not %s", uint32(math.MaxUint32), v.Text)
		case n < int64(least):
			r.problem(v.At, path, "must be at least %d", least)
		default:
			*of(t) = uint32(n)
		}
	}}
}

// charges are the names of the charges that rules can have.
var charges = []string{descriptors.ChargeAlways.String(), descriptors.ChargeAdmitted.String()}

var charge = setter{typ: "always, admitted", schema: enumSchema(charges), set: func(r *reader, t target, v *Value, path string) {
	t.file.charge, t.file.chargePos = r.charge(v, path), v.At
}}

func (r *reader) charge(v *Value, path string) *descriptors.Charge {
	var name string
	r.text(v, path, &name)
	for i, k := range charges {
		if k == name {
			c := descriptors.Charge(i)
			return &c
		}
	}
	r.problem(v.At, path, "unknown charge %q%s", name, spelling.Suggest(name, charges))
	return nil
}

// policy reads a failure policy.
func policy(of func(target) *descriptors.Policy) setter {
	names := descriptors.PolicyNames()
	return setter{typ: strings.Join(names, ", "), schema: enumSchema(names), set: func(r *reader, t target, v *Value, path string) {
		var name string
		r.text(v, path, &name)
		p, known := descriptors.ParsePolicy(name)
		if !known {
			r.problem(v.At, path, "unknown policy %q%s", name, spelling.Suggest(name, names))
			return
		}
		*of(t) = p
	}}
}

var strategy = setter{typ: "a name", schema: strategySchema, set: func(r *reader, t target, v *Value, path string) {
	var name string
	var err error
	r.text(v, path, &name)
	if t.limit.spec.Strategy, err = algorithms.ParseStrategy(name); err != nil {
		r.problem(v.At, path, "unknown strategy %q%s", name, spelling.Suggest(name, algorithms.Names()))
	}
}}

const windowFromFirstHit = "from_first_hit"

var fromFirstHit = setter{typ: windowFromFirstHit, schema: enumSchema([]string{windowFromFirstHit}), set: func(r *reader, t target, v *Value, path string) {
	var name string
	r.text(v, path, &name)
	t.limit.spec.FromFirstHit = name == windowFromFirstHit
	if !t.limit.spec.FromFirstHit {
		r.problem(v.At, path, "unknown window %q; %s, or leave it out for one that follows the clock", name, windowFromFirstHit)
	}
}}

// duration reads a duration above 0.
func duration(of func(target) *time.Duration) setter {
	return setter{typ: "a duration", schema: durationSchema, set: func(r *reader, t target, v *Value, path string) {
		var text string
		r.text(v, path, &text)
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			r.problem(v.At, path, "must be a duration above 0 such as 500ms or 1.5s, not %q", text)
			return
		}
		*of(t) = d
	}}
}

// percent reads a percentage above 0%.
func percent(of func(target) *algorithms.Percent) setter {
	return setter{typ: "a percentage", schema: percentSchema, set: func(r *reader, t target, v *Value, path string) {
		var text string
		r.text(v, path, &text)
		p, err := algorithms.ParsePercent(text)
		if err != nil {
			r.problem(v.At, path, "%v", err)
			return
		}
		*of(t) = p
	}}
}

// lease reads true, false, or a mapping. Null is false.
var lease = setter{typ: "true, or a mapping", schema: leaseSchema, set: func(r *reader, t target, v *Value, path string) {
	switch {
	case v.Kind == Map:
		l := algorithms.DefaultLease
		r.mapping(v, inLease, path, target{lease: &l})
		t.limit.spec.Lease = l
	case v.is == true:
		t.limit.spec.Lease = algorithms.DefaultLease
	case v.Kind == Bool || v.Kind == Null:
		t.limit.spec.Lease = algorithms.Lease{}
	default:
		r.problem(v.At, path, "must be true, false, or a mapping with share and ttl, not %s", v.describe())
	}
}}

var listOfReplaces = setter{typ: "a list", schema: listSchema("replaced"), set: func(r *reader, t target, v *Value, path string) {
	t.limit.replaces = nil
	for i, item := range r.list(v, path) {
		re := replaced{at: item.at("name")}
		r.mapping(item, inReplaces, fmt.Sprintf("%s[%d]", path, i), target{replaced: &re})
		t.limit.replaces = append(t.limit.replaces, re)
	}
}}

// list gives the mappings of a list; null is an empty list.
func (r *reader) list(v *Value, path string) []*Value {
	if v.Kind == Null {
		return nil
	}
	if v.Kind != List {
		r.problem(v.At, path, "must be a list, not %s", v.describe())
		return nil
	}
	items := make([]*Value, 0, len(v.Content))
	for i := range v.Content {
		if v.Content[i].Kind == Map {
			items = append(items, &v.Content[i])
		}
	}
	return items
}

func (r *reader) text(v *Value, path string, into *string) {
	if v.Kind == List || v.Kind == Map {
		r.problem(v.At, path, "must be a string, not %s", v.describe())
		return
	}
	*into = ""
	if v.Kind != Null {
		*into = v.Text
	}
}
