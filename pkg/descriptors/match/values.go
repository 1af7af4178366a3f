package match

import "fmt"

// compileValues makes the match of several values.
func compileValues(m *Match, texts []string) (item int, err error) {
	first := make(map[string]int, len(texts))
	for i, text := range texts {
		if m.Fold {
			text = Folded(text)
		}
		if before, again := first[text]; again {
			return i, fmt.Errorf("%q is the same value as %q before it; write it once", texts[i], texts[before])
		}
		first[text] = i
		m.Values = append(m.Values, text)
	}
	m.verify = func(value string) (found bool) {
		if !m.Fold {
			_, found = first[value]
			return found
		}
		var room [foldRoom]byte
		_, found = first[string(appendFolded(room[:0], value))]
		return found
	}
	return 0, nil
}
