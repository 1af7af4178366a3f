package rules

import (
	"slices"

	"example.org/rls/internal/fields"
)

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
