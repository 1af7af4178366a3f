package rules

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// Schema is a JSON Schema.
type Schema = map[string]any

// NewSchema returns the JSON Schema (draft 2020-12) of rule files, without $schema and
// $id. It accepts every file that [Load] accepts without LIMIT_SHARE and its like, and
// refuses unknown keys, wrong types, wrong names of strategies and the like, missing
// keys and numbers out of range. It does not know the conditions between fields and
// files, and it compares values, so that 5.0 is a whole number.
func NewSchema() Schema {
	s := object(inFile)
	s["title"] = "Rules of rls, a rate-limit service for Envoy"
	s["type"] = "object"
	s["required"] = []string{"domain"}

	descriptor := object(inDescriptor)
	descriptor["required"] = []string{"key"}
	replaced := object(inReplaces)
	replaced["required"] = []string{"name"}
	s["$defs"] = Schema{
		"descriptor": descriptor, "limit": limitSchema(), "replaced": replaced, "lease": object(inLease),
		"ignored": ignoredSchema(),
	}
	return s
}

// object is the schema of the keys of a place. A key of another place that the loader
// ignores with a warning is deprecated here.
func object(where place) Schema {
	properties := Schema{}
	for i := range fields {
		f := &fields[i]
		switch {
		case f.in == where:
			property := Schema{"description": f.describe()}
			for name, value := range f.value.schema {
				property[name] = value
			}
			properties[f.name] = property
		case !f.own && properties[f.name] == nil && !isKey(f.name, where):
			// The last two are of the language server.
			property := Schema{"deprecated": true, "doNotSuggest": true, "deprecationMessage": f.name + " has no meaning here and is ignored; it belongs into " + homes(f.name)}
			if !f.value.free { // not a $ref itself, beside which the language server sees nothing
				property["allOf"] = []Schema{{"$ref": "#/$defs/ignored"}}
			}
			properties[f.name] = property
		}
	}
	return Schema{"properties": properties, "additionalProperties": false}
}

func isKey(name string, where place) bool {
	i, known := lookup(name, where)
	return known && fields[i].in == where
}

// describe is the text of an editor about a field.
func (f *field) describe() string {
	text := f.what
	if f.def != "" {
		text += ". Default: " + f.def
	}
	if f.catch != "" {
		text += ". Note: " + f.catch
	}
	return text
}

// limitSchema is the schema of a limit: with a unit, or unlimited and without the
// fields that say how to count.
func limitSchema() Schema {
	var unit strings.Builder // in any case
	for i, name := range descriptors.UnitNames() {
		if i > 0 {
			unit.WriteByte('|')
		}
		for _, letter := range name {
			fmt.Fprintf(&unit, "[%c%c]", letter-'a'+'A', letter)
		}
	}
	inAnyCase := "^(" + unit.String() + ")$"
	limited := Schema{"unit": Schema{"type": "string", "anyOf": []Schema{{"enum": descriptors.UnitNames()}, {"pattern": inAnyCase}}}}
	unlimited := Schema{"unit": Schema{"not": Schema{"type": "string", "pattern": inAnyCase}}}
	for i := range fields {
		if f := &fields[i]; f.in == inLimit && f.own {
			unlimited[f.name] = false
		}
	}
	s := object(inLimit)
	s["if"] = Schema{"required": []string{"unlimited"}, "properties": Schema{"unlimited": Schema{"const": true}}}
	s["then"] = Schema{"properties": unlimited}
	s["else"] = Schema{"required": []string{"unit"}, "properties": limited}
	return s
}

// ignoredSchema is the schema of a value in a place where its key has no meaning: its
// own keys must be keys of the language.
func ignoredSchema() Schema {
	return Schema{
		"type":                 []string{"string", "integer", "boolean", "null", "object", "array"},
		"propertyNames":        Schema{"enum": names(func(*field) bool { return true })},
		"properties":           Schema{"metadata": true},
		"additionalProperties": Schema{"$ref": "#/$defs/ignored"},
		"items":                Schema{"type": "object", "$ref": "#/$defs/ignored"},
	}
}

// The schemas of setters.
var (
	textSchema     = Schema{"type": []string{"string", "integer", "boolean", "null"}}
	nameSchema     = Schema{"type": []string{"string", "integer", "boolean"}, "minLength": 1}
	booleanSchema  = Schema{"type": []string{"boolean", "null"}}
	strategySchema = Schema{"enum": algorithms.Names()}
	durationSchema = Schema{"type": "string", "pattern": `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`}
	percentSchema  = Schema{"type": "string", "pattern": `^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?%$`}
	metadataSchema = Schema{"type": []string{"object", "null"}}
	limitRef       = Schema{"type": []string{"object", "null"}, "$ref": "#/$defs/limit"}
	limitsSchema   = Schema{"type": []string{"array", "null"}, "minItems": 1, "items": Schema{
		"type": "object", "$ref": "#/$defs/limit", "properties": Schema{"unlimited": Schema{"enum": []any{false, nil}}}}}
	leaseSchema = Schema{"type": []string{"boolean", "null", "object"}, "$ref": "#/$defs/lease"}
)

// listSchema is the schema of a list of mappings.
func listSchema(of string) Schema {
	return Schema{"type": []string{"array", "null"}, "items": Schema{"type": "object", "$ref": "#/$defs/" + of}}
}

func countSchema(least uint32) Schema {
	types := []string{"integer"}
	if least == 0 {
		types = append(types, "null")
	}
	return Schema{"type": types, "minimum": least, "maximum": uint32(math.MaxUint32)}
}

func enumSchema(words []string) Schema { return Schema{"enum": slices.Clone(words)} }
