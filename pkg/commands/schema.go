package commands

import (
	"encoding/json"
	"maps"

	"github.com/alecthomas/kong"

	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/offline/ruletest"
)

const schemaHelp = `An editor with the YAML language server completes and checks a file that has this
line: # yaml-language-server: $schema=rules.json

Exit codes:
  0  the schema is printed
  2  an argument is wrong

Examples:
  rls schema > rules.json
  rls schema test > test.json
  rls schema overlay > overlay.json`

type schemaCmd struct {
	Of string `arg:"" optional:"" default:"rules" enum:"rules,test,overlay" help:"rules, test for the files of rls test, or overlay for files with overlays."`
}

// schemas has the JSON Schemas by the argument of the command.
var schemas = map[string]func() language.Schema{
	"rules":   language.NewSchema,
	"test":    ruletest.Schema,
	"overlay": language.NewOverlaySchema,
}

func (c *schemaCmd) Run(k *kong.Kong) error {
	schema := maps.Clone(schemas[c.Of]())
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["$id"] = "https://example.org/rls/docs/schema/" + c.Of + ".json"
	if c.Of == "test" {
		schema["title"] = "Unit tests of rules of rls, a rate-limit service for Envoy"
	}
	e := json.NewEncoder(k.Stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(schema)
}
