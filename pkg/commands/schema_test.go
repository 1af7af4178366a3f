package commands

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const schemaFolder = "../../docs/schema/"

// The program prints the schemas in docs/schema, to which the files in config/ refer.
func TestSchemasInDocs(t *testing.T) {
	for of := range schemas {
		var printed bytes.Buffer
		if err := (&schemaCmd{Of: of}).Run(&kong.Kong{Stdout: &printed}); err != nil {
			t.Fatal(err)
		}
		committed, err := os.ReadFile(schemaFolder + of + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(printed.Bytes(), committed) {
			t.Errorf("docs/schema/%s.json is old; run go run ./cmd/rls schema %s > docs/schema/%s.json", of, of, of)
		}
	}
}

// The files in config/ and the overlay that ships name the schema for editors, and fit it.
func TestExamplesFitTheirSchema(t *testing.T) {
	files, err := filepath.Glob("../../config/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, file := range append(files, "../../deploy/gateways/envoy-gateway/overlay.yaml") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		of := "rules"
		switch {
		case strings.HasSuffix(file, "_test.yaml"):
			of = "test"
		case strings.HasSuffix(file, "overlay.yaml"):
			of = "overlay"
		}
		schema, err := filepath.Rel(filepath.Dir(file), schemaFolder+of+".json")
		if err != nil || !bytes.HasPrefix(content, []byte("# yaml-language-server: $schema="+schema+"\n")) {
			t.Errorf("%s does not name its schema in the first line", file)
		}
		var document any
		if err := yaml.Unmarshal(content, &document); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		compiled, err := compiler.Compile(schemaFolder + of + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled.Validate(value); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
