package spelling_test

import (
	"strings"
	"testing"

	"example.org/rls/internal/spelling"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "ab", 1}, {"abc", "xabc", 1},
		{"abc", "acb", 1}, {"unit", "nuit", 1}, {"minuet", "minute", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3},
	} {
		if got := spelling.Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q to %q takes %d edits, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := spelling.Distance(tt.b, tt.a); got != tt.want {
			t.Errorf("%q to %q takes %d edits, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"second", "minute", "to", "OVER_LIMIT"}
	for word, want := range map[string]string{
		"minuet":                  `; did you mean "minute"?`,
		"MINUTES":                 `; did you mean "minute"?`,
		"over_limit":              `; did you mean "OVER_LIMIT"?`,
		"OverLimit":               `; did you mean "OVER_LIMIT"?`,
		"t":                       "; one of second, minute, to, OVER_LIMIT",
		"fortnight":               "; one of second, minute, to, OVER_LIMIT",
		strings.Repeat("m", 1000): "; one of second, minute, to, OVER_LIMIT",
	} {
		if got := spelling.Suggest(word, known); got != want {
			t.Errorf("%.10q gives %q, want %q", word, got, want)
		}
	}
}
