package yaml

import (
	"bytes"
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
	slices.SortFunc(keys, func(a, b descriptors.Position) int { return b.Compare(a) })
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

var (
	// emptyPair is a key with an empty value, and the blanks and the comma after it.
	emptyPair = regexp.MustCompile(`^(?:\w+|"\w+"|'\w+')[ \t]*:(?:[ \t]*(?:""|''))?[ \t]*(,[ \t]*)?`)
	lineBreak = regexp.MustCompile(`^\r?\n`)
	// closing is the end of a mapping in braces, behind blanks, line breaks and comments.
	closing = regexp.MustCompile(`^(?:[ \t\r\n]|#.*\n)*\}`)
	// itemStart is the start of an item of a list, before its first key.
	itemStart = regexp.MustCompile(`^ *- *$`)
)

// findEmpty finds the bytes to remove for the pair whose key stands in a column of
// the line that starts at a byte.
func findEmpty(content []byte, line, column int) (start, end int, ok bool) {
	start = line
	for range column - 1 {
		_, size := utf8.DecodeRune(content[start:])
		start += size
	}
	pair := emptyPair.FindSubmatchIndex(content[start:])
	if pair == nil {
		return 0, 0, false
	}
	end = start + pair[1]
	before, after := content[line:start], content[end:]
	lineEnd := len(lineBreak.Find(after))
	switch comma := pair[2] >= 0; {
	case comma: // {value: "", …}
	case closing.Match(after): // {…, value: ""}
		if list := bytes.TrimRight(content[:start], " \t\r\n"); bytes.HasSuffix(list, []byte(",")) {
			return len(list) - 1, len(bytes.TrimRight(content[:end], " \t")), true
		}
	case lineEnd > 0 && itemStart.Match(before): // - value: "", and the next key in the same column
		next := bytes.TrimLeft(after[lineEnd:], " \t")
		indent := len(after) - lineEnd - len(next)
		if indent == len(before) && len(next) > 0 && !bytes.ContainsRune([]byte("#\r\n"), rune(next[0])) {
			return start, len(content) - len(next), true
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
