package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const reliabilityDoc = "docs/reliability.md"

var testLink = regexp.MustCompile(`\[(Test\w+)\]\(([^)]+_test\.go)\)`)

// TestPromisesAreHeld: each promise names a number and at least one test, and each
// test that the document names exists.
func TestPromisesAreHeld(t *testing.T) {
	text := readDoc(t, reliabilityDoc)
	for _, m := range testLink.FindAllStringSubmatch(text, -1) {
		path := filepath.Join(filepath.Dir(reliabilityDoc), m[2])
		if !strings.Contains(readDoc(t, path), "\nfunc "+m[1]+"(t *testing.T) {") {
			t.Errorf("%s names %s, which %s does not have", reliabilityDoc, m[1], path)
		}
	}
	promises := 0
	for _, p := range parts(t, reliabilityDoc) {
		if !p.isTable() || p.heading != "Promises" || p.rows[0][0] != "promise" {
			continue // such as the table of figures that were seen
		}
		for _, row := range p.rows[1:] {
			promises++
			if len(row) != 3 || row[1] == "" || !testLink.MatchString(row[2]) {
				t.Errorf("%s: %q: want a promise, a number and a test", reliabilityDoc, row)
			}
		}
	}
	if promises < 20 {
		t.Errorf("only %d promises found", promises)
	}
}
