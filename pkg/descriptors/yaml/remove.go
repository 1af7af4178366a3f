package yaml

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"unicode/utf8"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
)

// RemoveEmpty removes keys whose value is written "" or not at all. It returns the
// new text and the positions of the keys that it removed.
//
// All other bytes stay, comments as well, except the blanks, the comma and the line
// break that belong to a pair. A key stays if the text without the key would not mean
// the same, such as a key that hides a merged one, or if the pair is written in an
// unusual way.
func RemoveEmpty(t Text, keys []descriptors.Position) (content []byte, removed []descriptors.Position) {
	// From the end, so that a removal does not move the keys before it.
	slices.SortFunc(keys, func(a, b descriptors.Position) int {
		return cmp.Or(cmp.Compare(b.Line, a.Line), cmp.Compare(b.Column, a.Column))
	})
	keys = slices.Compact(keys)
	if content, ok := removeAll(t, keys); ok {
		return content, keys
	}
	for i := range keys {
		if without, ok := removeAll(t, keys[i:i+1]); ok {
			t.Content, removed = without, append(removed, keys[i])
		}
	}
	return t.Content, removed
}

// removeAll removes the keys, which are sorted, the last first. It returns false if that is not
// possible.
func removeAll(t Text, keys []descriptors.Position) ([]byte, bool) {
	want := Read(t).Root
	gone := make(map[descriptors.Position]bool, len(keys))
	for _, key := range keys {
		gone[key] = true
	}
	if want == nil || !without(want, gone) {
		return nil, false
	}
	lines := bytes.SplitAfter(t.Content, []byte("\n"))
	starts := make([]int, len(lines))
	for i := range lines[1:] {
		starts[i+1] = starts[i] + len(lines[i])
	}
	content, rest := []byte(nil), 0
	for _, key := range slices.Backward(keys) {
		if key.Line > len(starts) {
			return nil, false // the parser knows more line breaks
		}
		start, end, ok := findEmpty(t.Content, starts[key.Line-1], key.Column)
		if !ok || start < rest {
			return nil, false
		}
		content, rest = append(content, t.Content[rest:start]...), end
	}
	content = append(content, t.Content[rest:]...)
	got := Read(Text{Name: t.Name, Content: content})
	return content, len(got.Problems) == 0 && got.Root != nil && same(want, got.Root)
}

// without removes the pairs from v whose keys stand at these positions. It returns false if another pair
// of the same mapping would take the place of one of them.
func without(v *document.Value, gone map[descriptors.Position]bool) bool {
	var kept []document.Value
	for i := 0; v.Kind == document.Map && i < len(v.Content); i += 2 {
		key := &v.Content[i]
		if !gone[key.At] {
			kept = append(kept, v.Content[i], v.Content[i+1])
			continue
		}
		for j := 0; j < len(v.Content); j += 2 {
			if j != i && v.Content[j].Text == key.Text {
				return false
			}
		}
	}
	if v.Kind == document.Map {
		v.Content = kept
	} else {
		v.Content = slices.Clone(v.Content) // aliases share it
	}
	for i := range v.Content {
		if !without(&v.Content[i], gone) {
			return false
		}
	}
	return true
}

// same reports whether two values are the same, wherever they stand.
func same(a, b *document.Value) bool {
	return a.Kind == b.Kind && a.Text == b.Text && slices.EqualFunc(a.Content, b.Content, func(a, b document.Value) bool { return same(&a, &b) })
}

// emptyPair is a key with an empty value, and the blanks after it.
var emptyPair = regexp.MustCompile(`^(?:\w+|"\w+"|'\w+')[ \t]*:(?:[ \t]*(?:""|''))?[ \t]*`)

// findEmpty finds the bytes to remove for the pair whose key stands in a column of
// the line that starts at a byte.
func findEmpty(content []byte, line, column int) (start, end int, ok bool) {
	start = line
	for range column - 1 {
		_, size := utf8.DecodeRune(content[start:])
		start += size
	}
	pair := emptyPair.Find(content[start:])
	if pair == nil {
		return 0, 0, false
	}
	end = start + len(pair)
	before, after := content[line:start], content[end:]
	lineEnd := lineBreak(after)
	switch next := afterBlanks(after); {
	case bytes.HasPrefix(after, []byte(",")): // {value: "", …}
		end += 1 + blanks(after[1:])
		lineEnd = lineBreak(content[end:])
	case bytes.HasPrefix(next, []byte("}")): // {…, value: ""}
		if list := bytes.TrimRight(content[:start], " \t\r\n"); bytes.HasSuffix(list, []byte(",")) {
			return len(list) - 1, len(bytes.TrimRight(content[:end], " \t")), true
		}
	case lineEnd > 0 && isItem(before): // - value: "", and the next key in the same column
		below := end + lineEnd
		next := below + blanks(content[below:])
		if next-below == len(before) && next < len(content) && !bytes.ContainsRune([]byte("#\r\n"), rune(content[next])) {
			return start, next, true
		}
	}
	switch {
	case lineEnd == 0 && end < len(content): // something else stands behind it on the line
		return start, end, true
	case len(bytes.TrimSpace(before)) == 0: // the whole line
		return line, end + lineEnd, true
	}
	return len(bytes.TrimRight(content[:start], " \t")), end, true
}

// isItem reports whether text is the start of an item of a list: "  - ".
func isItem(text []byte) bool {
	text = bytes.Trim(text, " ")
	return len(text) == 1 && text[0] == '-'
}

func blanks(text []byte) int { return len(text) - len(bytes.TrimLeft(text, " \t")) }

// lineBreak is the length of the line break at the start of a text, 0 if there is
// none. The end of the text is one.
func lineBreak(text []byte) int {
	switch {
	case bytes.HasPrefix(text, []byte("\r\n")):
		return 2
	case bytes.HasPrefix(text, []byte("\n")):
		return 1
	}
	return 0
}

// afterBlanks is the text after its blanks, line breaks and comments.
func afterBlanks(text []byte) []byte {
	for {
		text = bytes.TrimLeft(text, " \t\r\n")
		if len(text) == 0 || text[0] != '#' {
			return text
		}
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
}
