package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// budgets has the most words of each Markdown file, as wc -w counts them. A row that ends in /
// is for all files of the folder together that have no row of their own.
var budgets = map[string]int{
	"README.md":       1000,
	"CHANGELOG.md":    400,
	"CONTRIBUTING.md": 1900,
	"SECURITY.md":     70,
	"deploy/":         3500,
	"docs/adr/":       6150,

	"docs/README.md":            400,
	"docs/admin.md":             2350,
	"docs/backends.md":          1400,
	"docs/before-the-limit.md":  590,
	"docs/commands.md":          1800,
	"docs/contour.md":           300,
	"docs/costs-known-later.md": 450,
	"docs/envoy-gateway.md":     300,
	"docs/envoy.md":             300,
	"docs/events.md":            400,
	"docs/first-rule.md":        350,
	"docs/glossary.md":          600,
	"docs/istio.md":             300,
	"docs/kuadrant.md":          400,
	"docs/kubernetes.md":        1000,
	"docs/match.md":             735,
	"docs/metrics.md":           1700,
	"docs/migrate.md":           1425,
	"docs/multi-region.md":      600,
	"docs/overlays.md":          500,
	"docs/page.md":              350,
	"docs/plans.md":             815,
	"docs/pools.md":             470,
	"docs/recipes.md":           500,
	"docs/reliability.md":       700,
	"docs/rlqs.md":              850,
	"docs/rules.md":             1600,
	"docs/runbook.md":           1250,
	"docs/security.md":          975,
	"docs/settings.md":          4000,
	"docs/sizing.md":            950,
	"docs/store-away.md":        1300,
	"docs/strategies.md":        2200,
	"docs/testing.md":           1100,
	"docs/tracing.md":           250,
	"docs/troubleshooting.md":   750,
	"docs/trying.md":            400,
	"docs/upgrade.md":           600,
	"docs/xds.md":               500,
}

const (
	wordsInAll  = 46_500
	wordsABlock = 70 // of a paragraph or an item of a list
	wordsACell  = 30 // of a table
)

// TestBudgets: each document, all together, and each block of them is short enough to be read.
func TestBudgets(t *testing.T) {
	words, inAll := map[string]int{}, 0
	eachFile(t, []string{".md"}, func(path string) {
		text, name := read(path), filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		row := rowOf(name)
		if row == "" {
			t.Errorf("%s has no budget: give it a row, and take the words from others", name)
		}
		n := len(strings.Fields(text))
		words[row], inAll = words[row]+n, inAll+n
		for _, b := range longBlocks(text) {
			t.Errorf("%s:%d: %d words in one %s, at most %d: divide or shorten it", name, b.line, b.words, b.kind, b.most)
		}
	})
	for row, most := range budgets {
		switch n := words[row]; {
		case n == 0:
			t.Errorf("%s has a budget and is no document", row)
		case n > most:
			t.Errorf("%s has %d words, at most %d", row, n, most)
		}
	}
	if inAll > wordsInAll {
		t.Errorf("all documents have %d words, at most %d", inAll, wordsInAll)
	}
}

// rowOf is the row of budgets for a file, "" if there is none.
func rowOf(name string) string {
	if _, own := budgets[name]; own {
		return name
	}
	for row := range budgets {
		if strings.HasSuffix(row, "/") && strings.HasPrefix(name, row) {
			return row
		}
	}
	return ""
}

// long is a block with more words than most. It begins at line.
type long struct {
	line, words, most int
	kind              string
}

var item = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)

// longBlocks returns the blocks of a text that are too long. Code is no block.
func longBlocks(text string) (found []long) {
	fenced, block := false, long{}
	end := func() {
		if block.words > wordsABlock {
			found = append(found, block)
		}
		block = long{}
	}
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		isFence := strings.HasPrefix(trimmed, "```")
		switch {
		case isFence, fenced, trimmed == "", strings.HasPrefix(line, "#"):
			end()
		case strings.HasPrefix(trimmed, "|"):
			end()
			for _, cell := range cells(strings.ReplaceAll(trimmed, `\|`, "")) {
				if n := len(strings.Fields(cell)); n > wordsACell {
					found = append(found, long{i + 1, n, wordsACell, "cell"})
				}
			}
		default:
			if item.MatchString(line) {
				end()
			}
			if block.line == 0 {
				block = long{i + 1, 0, wordsABlock, "block"}
			}
			block.words += len(strings.Fields(line))
		}
		fenced = fenced != isFence
	}
	end()
	return found
}

// TestLongBlocksAreFound: a block of 71 words is too long, and code and tables are no blocks.
func TestLongBlocksAreFound(t *testing.T) {
	words := func(n int) string { return strings.Repeat("word ", n) }
	text := "# " + words(99) + "\n" + words(70) + "\n\n" + words(40) + "\n" + words(31) +
		"\n- " + words(69) + "\n- " + words(70) + "\n\n| " + words(30) + "| " + words(31) + "|\n\n```\n" + words(99) + "\n```\n1. " + words(30) + "\n   " + words(40)
	want := []long{{4, 71, 70, "block"}, {7, 71, 70, "block"}, {9, 31, 30, "cell"}, {14, 71, 70, "block"}}
	got := longBlocks(text)
	if len(got) != len(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got[i], want[i])
		}
	}
}
