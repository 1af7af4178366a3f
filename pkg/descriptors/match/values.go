package match

import "fmt"

// compileValues makes the match of several values.
func compileValues(m *Match, texts []string) (wrong []Wrong) {
	first := make(map[string]int, len(texts))
	for i, text := range texts {
		if m.Fold {
			text = foldText(text)
		}
		if before, again := first[text]; again {
			wrong = append(wrong, Wrong{i, fmt.Errorf("%q is the same value as %q before it; write it once", texts[i], texts[before])})
			continue
		}
		first[text] = i
		m.Values = append(m.Values, text)
	}
	m.verify = func(value string, _ *Work) (found bool) {
		if !m.Fold {
			_, found = first[value]
			return found
		}
		var room [foldRoom]byte
		_, found = first[string(appendFolded(room[:0], value))]
		return found
	}
	return wrong
}
