// Package spelling finds the word that a misspelt word was probably meant to be.
package spelling

import "strings"

// Distance counts the bytes that have to be inserted, deleted or replaced, and
// the neighbours that have to be swapped, to turn a into b. No byte is edited
// twice (optimal string alignment distance).
func Distance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range current {
		current[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, previous, current = previous, current, before
		current[0] = i
		for j := 1; j <= len(b); j++ {
			replace := previous[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			current[j] = min(replace, previous[j]+1, current[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
	}
	return current[len(b)]
}

// Near reports whether a word was probably meant to be the known one: it is at most two
// edits away, whatever its case, and fewer edits than either word has bytes. A word of
// more than 64 bytes is near to none.
func Near(word, known string) (edits int, near bool) {
	const maxEdits, maxLen = 2, 64
	if len(word) > maxLen || len(known) > maxLen+maxEdits {
		return 0, false
	}
	edits = Distance(strings.ToLower(word), strings.ToLower(known))
	return edits, edits <= maxEdits && edits < len(word) && edits < len(known)
}

// Nearest returns the first of the known words that is [Near] to word and nearer than the
// others. It returns "" when none is near.
func Nearest(word string, known []string) (nearest string) {
	var least int
	for _, k := range known {
		if edits, near := Near(word, k); near && (nearest == "" || edits < least) {
			nearest, least = k, edits
		}
	}
	return nearest
}

// Either lists words, at least one: "a, b or c".
func Either(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Suggest is the end of a message about a word that is not one of the known
// words: the nearest of them, or all of them.
func Suggest(word string, known []string) string {
	if nearest := Nearest(word, known); nearest != "" {
		return `; did you mean "` + nearest + `"?`
	}
	return "; one of " + strings.Join(known, ", ")
}
