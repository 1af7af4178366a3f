package docs_test

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPictures: each picture in docs/pictures is XML, has a title and a description for people
// who do not see it, and stands in a document.
func TestPictures(t *testing.T) {
	var documents string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no documents %s: %v", pattern, err)
		}
		for _, f := range files {
			documents += read(f)
		}
	}
	pictures, err := filepath.Glob(filepath.Join(root, "docs/pictures/*.svg"))
	if err != nil || len(pictures) < 5 {
		t.Fatalf("%d pictures found: %v", len(pictures), err)
	}
	for _, path := range pictures {
		name := filepath.Base(path)
		if !strings.Contains(documents, "pictures/"+name+")") {
			t.Errorf("no document has the picture %s", name)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var svg struct {
			Title string `xml:"title"`
			Desc  string `xml:"desc"`
		}
		if err := xml.Unmarshal(text, &svg); err != nil || svg.Title == "" || svg.Desc == "" {
			t.Errorf("%s: %v, title %q, description %q: want all in an SVG", name, err, svg.Title, svg.Desc)
		}
	}
}
