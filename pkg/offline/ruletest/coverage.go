package ruletest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// Coverage says which rules tests have matched. A rule whose table gives plans counts once for each of
// them, and once for values without a row.
type Coverage struct {
	Rules   int         `json:"rules"` // descriptors with a limit, or unlimited
	Covered int         `json:"covered"`
	Percent float64     `json:"percent"` // rounded down to a tenth; 100 without rules
	Missing []Uncovered `json:"missing"`
}

// Uncovered is a rule that no test matched.
type Uncovered struct {
	Rule string `json:"rule"` // as [descriptors.Rule.PathOfPart] has it
	File string `json:"file"`
	Line int    `json:"line"`
}

// AtLeast reports whether that many percent of the rules are covered.
func (c *Coverage) AtLeast(percent float64) bool {
	return float64(c.Covered)*100 >= percent*float64(c.Rules)
}

// Text has the rules that no test matched, and the share of the others. It is "" for a nil
// Coverage.
func (c *Coverage) Text() string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	for _, m := range c.Missing {
		fmt.Fprintf(&b, "not covered: %s:%d: %s\n", m.File, m.Line, m.Rule)
	}
	fmt.Fprintf(&b, "coverage: %d of %d rules (%g %%)\n", c.Covered, c.Rules, c.Percent)
	return b.String()
}

// coverage says of each rule whether a test matched it. Test files that load the same
// rule files have them in common.
type coverage map[ruleName]bool

type ruleName struct {
	at   document.Position
	path string
}

func nameOf(r *descriptors.Rule) ruleName { return ruleName{r.Pos, r.PathOfPart()} }

// match notes the rules of statuses. A rule whose limits an override replaced is not one of them.
func (c coverage) match(statuses []service.Status) {
	for i := range statuses {
		if s := &statuses[i]; s.Rule != nil && !s.Override {
			c[nameOf(s.Rule)] = true
		}
	}
}

func (c coverage) report() *Coverage {
	report := &Coverage{Rules: len(c), Missing: []Uncovered{}, Percent: 100}
	sorted := slices.SortedFunc(maps.Keys(c), func(a, b ruleName) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.path, b.path))
	})
	for _, name := range sorted {
		if c[name] {
			report.Covered++
		} else {
			report.Missing = append(report.Missing, Uncovered{name.path, name.at.File, name.at.Line})
		}
	}
	if report.Rules > 0 {
		report.Percent = math.Floor(float64(report.Covered)*1000/float64(report.Rules)) / 10
	}
	return report
}
