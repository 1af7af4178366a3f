package rules

import (
	"slices"
	"strings"

	"example.org/rls/internal/fields"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// Schema is a JSON Schema.
type Schema = fields.Schema

// NewSchema returns the JSON Schema (draft 2020-12) of rule files, without $schema and
// $id. It accepts every file that [Load] accepts with the zero Options, and refuses
// unknown keys (but inside a value that the loader ignores), wrong types, wrong names of strategies
// and the like, missing keys, numbers out of range, and fields that do not go together in one
// mapping. It does not know conditions between the items of a list, between files, or of
// arithmetic, and it compares values, so that 5.0 is a whole number.
func NewSchema() Schema {
	s := object(inFile)
	s["title"] = "Rules of rls, a rate-limit service for Envoy"
	s["type"] = "object"
	s["$defs"] = Schema{
		"descriptor": object(inDescriptor), "limit": limitSchema(), "replaced": object(inReplaces), "lease": object(inLease), "threshold": object(inThreshold), "reserve": object(inReserve),
		"table": tableSchema(), "match": matchSchema(), "mask": object(inMask), "pool": poolSchema(),
	}
	return s
}

// NewOverlaySchema is [NewSchema] for files with overlays.
func NewOverlaySchema() Schema {
	s, defs := fields.ObjectSchema(overlayFile), NewSchema()["$defs"].(Schema)
	set, beside := object(inLimit)["properties"].(Schema), Schema{}
	for name := range set {
		if !slices.Contains(names(settable), name) {
			delete(set, name)
		} else if !slices.Contains(besidePlan, name) {
			beside[name] = false
		}
	}
	defs["set"] = Schema{
		"type": "object", "minProperties": 1, "additionalProperties": false, "properties": set,
		"if": Schema{"required": []string{"plan"}}, "then": Schema{"properties": beside},
	}
	for _, unused := range []string{"descriptor", "match", "mask", "pool"} {
		delete(defs, unused)
	}
	s["title"], s["$defs"] = "Overlays of rls, a rate-limit service for Envoy", defs
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
		properties[f.Name] = Schema{"deprecated": true, "doNotSuggest": true, "deprecationMessage": f.Name + " has no meaning here and is ignored; it belongs into " + homes(f.Name)}
	}
	return s
}

var aWildcard = Schema{"type": "string", "pattern": `\*`}

// has is the schema of a mapping in which the field fits value if it is there.
func has(name string, value any) Schema { return Schema{"properties": Schema{name: value}} }

// given is the schema of a mapping that has the field, with a value that fits.
func given(name string, value any) Schema {
	return Schema{"required": []string{name}, "properties": Schema{name: value}}
}

func anyOf(schemas ...Schema) Schema { return Schema{"anyOf": schemas} }

// withoutReserve is the schema of a descriptor none of whose limits has reserve.
func withoutReserve() Schema {
	reserves := given("reserve", Schema{"not": Schema{"enum": []any{false, nil}}})
	reserves["type"] = "object"
	return Schema{"properties": Schema{"rate_limit": Schema{"not": reserves}, "rate_limits": Schema{"items": Schema{"not": reserves}}}}
}

// longestWindows is the schema of a limit whose window is at most 10 years.
func longestWindows() Schema {
	var units []Schema
	for _, name := range descriptors.UnitNames() {
		longest := algorithms.MaxWindow / descriptors.ParseUnit(name).Duration()
		units = append(units, Schema{"properties": Schema{"unit": Schema{"pattern": inAnyCase(name)}, "unit_multiplier": Schema{"maximum": longest}}})
	}
	return anyOf(units...)
}

// calendarPeriods is the schema of a limit whose window is a period of the calendar.
func calendarPeriods() Schema {
	return Schema{"allOf": []Schema{ofCalendar(descriptors.Day, descriptors.Week, descriptors.Month, descriptors.Year), has("unit_multiplier", Schema{"const": 1})}}
}

// ofCalendar is the schema of a limit with `window: calendar` and one of the units.
func ofCalendar(units ...descriptors.Unit) Schema {
	var names []string
	for _, u := range units {
		names = append(names, strings.ToLower(u.String()))
	}
	return Schema{"allOf": []Schema{given("window", Schema{"const": windowCalendar}), has("unit", Schema{"pattern": inAnyCase(names...)})}}
}

func inAnyCase(words ...string) string { return "^(" + fields.InAnyCase(words) + ")$" }

// limitSchema is the schema of a limit: with a unit, or with a plan or unlimited, and then
// without the fields that say how to count.
func limitSchema() Schema {
	unit := inAnyCase(descriptors.UnitNames()...)
	limited := Schema{"unit": Schema{"type": "string", "anyOf": []Schema{{"enum": descriptors.UnitNames()}, {"pattern": unit}}}}
	unlimited := Schema{"unit": Schema{"not": Schema{"type": "string", "pattern": unit}}}
	for i := range table {
		if f := &table[i]; f.in == inLimit && f.own && f.Name != "table" {
			unlimited[f.Name] = false
		}
	}
	s := object(inLimit)
	s["if"] = Schema{"required": []string{"unlimited"}, "properties": Schema{"unlimited": Schema{"const": true}}}
	s["then"] = Schema{"properties": unlimited}
	s["else"] = Schema{
		"if": Schema{"required": []string{"plan"}}, "then": Schema{"properties": limitedTo(besidePlan)},
		"else": Schema{"required": []string{"unit"}, "properties": limited},
	}
	return s
}

// poolSchema is the schema of a limit of pools.
func poolSchema() Schema {
	properties := limitedTo(amounts)
	properties["strategy"] = Schema{"not": Schema{"const": algorithms.Concurrency.String()}}
	return Schema{"type": "object", "$ref": "#/$defs/limit", "properties": properties}
}

// limitedTo refuses the fields of a limit but those with the names.
func limitedTo(names []string) Schema {
	properties := Schema{}
	for i := range table {
		if f := &table[i]; f.in == inLimit && !slices.Contains(names, f.Name) {
			properties[f.Name] = false
		}
	}
	return properties
}

// tableSchema is the schema of the mapping of a table.
func tableSchema() Schema {
	s := object(inTable)
	s["anyOf"] = []Schema{{"required": []string{"file"}}, {"required": []string{"url"}}}
	return s
}

// planSchema is the schema of a plan.
func planSchema() Schema {
	limit := func(properties Schema) Schema {
		properties["plan"], properties["table"] = false, false
		return Schema{"type": "object", "$ref": "#/$defs/limit", "properties": properties}
	}
	return anyOf(limit(Schema{}), Schema{"type": "array", "minItems": 1, "items": limit(Schema{"unlimited": Schema{"enum": []any{false, nil}}})})
}
