// Package docs_test compares the documents with the program: it runs the commands
// of README.md and of guides, plays the timelines of docs/strategies.md, starts the examples of
// docs/backends.md, and follows every link.
package docs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

// part is a fenced block or a table of a document.
type part struct {
	heading string // of the section
	line    int    // the first, counted from 1
	lang    string // of a fenced block
	text    string // of a fenced block
	rows    [][]string
}

func (p *part) isTable() bool { return p.rows != nil }

func readDoc(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// parts returns the fenced blocks and tables of a document, in order. A table's
// first row is its header; the line of dashes below it is left out.
func parts(t *testing.T, path string) []*part {
	t.Helper()
	var found []*part
	var block, table *part
	heading := ""
	for i, line := range strings.Split(readDoc(t, path), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && block == nil:
			block = &part{heading: heading, line: i + 1, lang: fence}
			found = append(found, block)
		case isFence:
			block = nil
		case block != nil:
			block.text += line + "\n"
		case strings.HasPrefix(line, "|"):
			if table == nil {
				table = &part{heading: heading, line: i + 1}
				found = append(found, table)
			}
			if !strings.HasPrefix(line, "|---") {
				table.rows = append(table.rows, cells(line))
			}
			continue
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
		table = nil
	}
	if block != nil {
		t.Fatalf("%s:%d: the block does not end", path, block.line)
	}
	return found
}

func cells(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}
