package rules

import (
	"fmt"
	"regexp"
	"strings"
)

// regexpSigns are the parts of a text that hardly anything but a regular expression
// has. A dot, a+b, $5, get|head and Go_(game) are values that people use.
var regexpSigns = []struct {
	pattern *regexp.Regexp
	sign    string // as a message names it
}{
	{regexp.MustCompile(`^\^.`), "^ at the start"},
	{regexp.MustCompile(`.\$$`), "$ at the end"},
	{regexp.MustCompile(`\.\*`), ".*"},
	{regexp.MustCompile(`\.\+`), ".+"},
	// Not the \d of CORP\dave.
	{regexp.MustCompile(`\\[dwsDWS]([^A-Za-z0-9_]|$)`), `\d, \w or \s`},
	// At the start of the brackets, or one of the usual ranges anywhere in them.
	{regexp.MustCompile(`\[\^?([a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9])[^\]]*\]|\[[^\]]*(a-z|A-Z|\b0-9)[^\]]*\]`), "a range such as [a-z]"},
	{regexp.MustCompile(`\([^()]+\|[^()]+\)`), "alternatives such as (a|b)"},
}

// addresses is the pattern of numbers, or * in place of a number, with dots between:
// 10.0.*.
var addresses = regexp.MustCompile(`^\d+(\.(\d+|\*))+$`)

// regexpSign is the part of a text that makes it look like a regular expression,
// "" if none does.
func regexpSign(text string) string {
	if !strings.ContainsAny(text, `^$.\[(`) || addresses.MatchString(text) {
		return ""
	}
	for _, s := range regexpSigns {
		if s.pattern.MatchString(text) {
			return s.sign
		}
	}
	return ""
}

// asPattern is the end of a message with the pattern of this language for a simple
// regular expression.
func asPattern(text string) string {
	pattern := strings.TrimSuffix(strings.TrimPrefix(text, "^"), "$")
	pattern = strings.NewReplacer(".*", "*", ".+", "*", `\.`, ".", `\/`, "/", `\-`, "-").Replace(pattern)
	if regexpSign(pattern) != "" || strings.ContainsAny(pattern, `\[](){}|?+^$`) {
		return "; list the values, or write a pattern with *"
	}
	return fmt.Sprintf("; did you mean %q?", pattern)
}
