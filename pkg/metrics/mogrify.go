package metrics

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// Mogrifier renames the paths that its pattern matches, and turns parts of them
// into tags.
type Mogrifier struct {
	pattern *regexp.Regexp
	name    string
	tags    []tag
}

type tag struct{ key, value string }

// NewMogrifier returns a mogrifier. In name and in the values of tags, $1 stands
// for the text that the first group of the pattern matched. The error says which
// argument is wrong.
func NewMogrifier(pattern, name string, tags map[string]string) (Mogrifier, error) {
	re, err := regexp.Compile(pattern)
	switch {
	case pattern == "":
		return Mogrifier{}, fmt.Errorf("pattern is missing")
	case err != nil:
		return Mogrifier{}, fmt.Errorf("pattern: %w", err)
	case name == "":
		return Mogrifier{}, fmt.Errorf("name is missing")
	}
	m := Mogrifier{pattern: re, name: name}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key == "" || tags[key] == "" {
			return Mogrifier{}, fmt.Errorf("tag %q:%q: want key:value", key, tags[key])
		}
		m.tags = append(m.tags, tag{key, tags[key]})
	}
	return m, nil
}

var group = regexp.MustCompile(`\$\d+`)

// mogrify applies the first mogrifier that matches path. A path without one
// stays as it is.
func mogrify(mogrifiers []Mogrifier, path string) (name string, tags []string) {
	for i := range mogrifiers {
		m := &mogrifiers[i]
		groups := m.pattern.FindStringSubmatch(path)
		if groups == nil {
			continue
		}
		expand := func(template string) string {
			return group.ReplaceAllStringFunc(template, func(ref string) string {
				if i, err := strconv.Atoi(ref[1:]); err == nil && i < len(groups) {
					return groups[i]
				}
				return ref
			})
		}
		for _, t := range m.tags {
			tags = append(tags, tagPart(t.key)+":"+dogTag(expand(t.value)))
		}
		return expand(m.name), tags
	}
	return path, nil
}
