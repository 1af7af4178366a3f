package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPicturesHaveOneStyle: each picture is text of at most 200 KB, says in words what it shows, and
// takes its colours from one palette that has them for light and for dark pages.
func TestPicturesHaveOneStyle(t *testing.T) {
	files, err := filepath.Glob(root + "/docs/pictures/*")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d pictures, %v", len(files), err)
	}
	named := regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]+)`)
	var palette [2]map[string]string
	for i := range palette {
		palette[i] = map[string]string{}
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if filepath.Ext(file) != ".svg" || len(b) > 200<<10 || !strings.Contains(text, "<title id=") || !strings.Contains(text, "<desc id=") {
			t.Errorf("%s: want an SVG of at most 200 KB with a title and a description", file)
		}
		style, rest, _ := strings.Cut(text, "</style>")
		light, dark, _ := strings.Cut(style, "@media (prefers-color-scheme: dark)")
		for i, part := range []string{light, dark} {
			for _, m := range named.FindAllStringSubmatch(part, -1) {
				if known := palette[i][m[1]]; known != "" && known != m[2] {
					t.Errorf("%s: --%s is %s, elsewhere %s", file, m[1], m[2], known)
				}
				palette[i][m[1]] = m[2]
			}
			rest += named.ReplaceAllString(part, "")
		}
		if found := regexp.MustCompile(`#[0-9a-fA-F]{3,8}\b`).FindString(rest); found != "" {
			t.Errorf("%s: %s is not a colour by its name", file, found)
		}
		for _, m := range regexp.MustCompile(`var\(--([a-z0-9-]+)\)`).FindAllStringSubmatch(text, -1) {
			if palette[0][m[1]] == "" || palette[1][m[1]] == "" {
				t.Errorf("%s: --%s is not a colour in light and in dark", file, m[1])
			}
		}
	}
}
