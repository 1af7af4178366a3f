package rules

import (
	"fmt"
	"strings"

	"example.org/rls/internal/fields"
	"example.org/rls/pkg/descriptors"
)

// Schema is a JSON Schema.
type Schema = fields.Schema

// NewSchema returns the JSON Schema (draft 2020-12) of rule files, without $schema and
// $id. It accepts every file that [Load] accepts without LIMIT_SHARE and its like, and
// refuses unknown keys, wrong types, wrong names of strategies and the like, missing
// keys and numbers out of range. It does not know the conditions between fields and
// files, and it compares values, so that 5.0 is a whole number.
func NewSchema() Schema {
	s := object(inFile)
	s["title"] = "Rules of rls, a rate-limit service for Envoy"
	s["type"] = "object"
	s["$defs"] = Schema{
		"descriptor": object(inDescriptor), "limit": limitSchema(), "replaced": object(inReplaces), "lease": object(inLease),
		"ignored": ignoredSchema(),
	}
	return s
}

// object is the schema of the keys of a place. A key of another place that the loader
// ignores with a warning is deprecated here.
func object(where place) Schema {
	var rows []row
	for i := range table {
		if table[i].in == where {
			rows = append(rows, table[i].row)
		}
	}
	s := fields.ObjectSchema(rows)
	delete(s, "type") // stands beside each $ref
	properties := s["properties"].(Schema)
	for i := range table {
		f := &table[i]
		if f.own || properties[f.Name] != nil {
			continue
		}
		// The last two are of the language server.
		property := Schema{"deprecated": true, "doNotSuggest": true, "deprecationMessage": f.Name + " has no meaning here and is ignored; it belongs into " + homes(f.Name)}
		if !f.free { // not a $ref itself, beside which the language server sees nothing
			property["allOf"] = []Schema{{"$ref": "#/$defs/ignored"}}
		}
		properties[f.Name] = property
	}
	return s
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
	for i := range table {
		if f := &table[i]; f.in == inLimit && f.own {
			unlimited[f.Name] = false
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
