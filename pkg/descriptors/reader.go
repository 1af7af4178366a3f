package descriptors

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// reader turns the YAML of one file into a fileRules, and collects what is
// wrong with it.
type reader struct {
	file     string
	places   []string // by line, when no one wrote the lines
	problems Problems
	placed   int // how many of the problems are those of a descriptor
	warnings Problems
	limits   limitCache
	// overridden > 0: the value being read is replaced by a later one of the
	// same key. Only its types matter then.
	overridden int
	pairs      []pair // of the mappings that are being read, a stack
	turns      turns
	nodes      nodePool

	carriedCharge *Charge // that metadata.rls gave the domain, and where
	carriedPos    Position
}

func (r *reader) problem(n *yaml.Node, field, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.pos(n), field, fmt.Sprintf(format, args...)})
}

func (r *reader) warn(line, column int, field, format string, args ...any) {
	r.warnings = append(r.warnings, Problem{r.at(line, column), field, fmt.Sprintf(format, args...)})
}

func (r *reader) pos(n *yaml.Node) Position { return r.at(n.Line, n.Column) }

func (r *reader) at(line, column int) Position {
	if r.places != nil {
		return Position{File: r.places[line-1]}
	}
	return Position{r.file, line, column}
}

// pair is a key of a mapping and its value, aliases resolved.
type pair struct {
	key   key
	name  *yaml.Node
	value *yaml.Node
	// overridden: the same key comes again.
	overridden bool
}

// mapping reads a mapping that stands in place: do is called for each key that
// means something there, in order. field names the mapping.
func (r *reader) mapping(n *yaml.Node, where place, field string, do func(pair, string)) {
	r.turns.next()
	var last [keyCount]int
	content := r.flatten(n, field)
	base := len(r.pairs)
	for i := 0; i < len(content); i += 2 {
		name, value := target(content[i]), target(content[i+1])
		k, ok := r.key(name, where, field)
		if !ok {
			continue
		}
		r.pairs = append(r.pairs, pair{key: k, name: name, value: value})
		if before := last[k]; before > 0 {
			r.pairs[before-1].overridden = true
			r.warn(name.Line, name.Column, join(field, k.String()), "the key is repeated; only the last one counts")
		}
		last[k] = len(r.pairs)
	}
	end := len(r.pairs)
	for i := base; i < end; i++ {
		p := r.pairs[i]
		if p.overridden {
			r.overridden++
		}
		path := join(field, p.key.String())
		switch {
		case !r.leaf(p.key, p.value, path):
		case r.belongs(p, where, path):
			do(p, path)
		default:
			r.ignored(p.key, p.value, path)
		}
		if p.overridden {
			r.overridden--
		}
	}
	r.pairs = r.pairs[:base]
}

// flatten lists keys and values with merge keys (<<) replaced by what they
// stand for. As rules have always been read, what comes later wins, merged or
// not; of a list of merged mappings the first.
func (r *reader) flatten(n *yaml.Node, field string) []*yaml.Node {
	merges := false
	for i := 0; i < len(n.Content); i += 2 {
		merges = merges || isMerge(n.Content[i])
	}
	if !merges {
		return n.Content
	}
	var flat []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		name, value := n.Content[i], target(n.Content[i+1])
		if !isMerge(name) {
			flat = append(flat, name, n.Content[i+1])
			continue
		}
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode && n.Content[i+1].Kind != yaml.AliasNode {
			sources = value.Content
		}
		for j := len(sources) - 1; j >= 0; j-- {
			source := target(sources[j])
			if source.Kind != yaml.MappingNode {
				r.problem(name, field, "<< needs a mapping or a list of mappings")
				break
			}
			flat = append(flat, r.flatten(source, field)...)
		}
	}
	return flat
}

func isMerge(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "<<" && n.Tag == "!!merge"
}

// key reads the name of a key.
func (r *reader) key(n *yaml.Node, where place, field string) (key, bool) {
	s := scalar{kind: kindInvalid}
	if n.Kind == yaml.ScalarNode {
		s = readScalar(n)
	}
	if s.kind != kindString {
		if r.overridden == 0 || n.Kind != yaml.ScalarNode {
			r.problem(n, field, "a key must be a string; %s is %s", describe(n), s.kind)
		}
		return 0, false
	}
	k, ok := keysByName[s.text]
	if !ok && r.overridden == 0 {
		r.problem(n, join(field, s.text), "%s", unknownKey(s.text, where))
	}
	return k, ok
}

// belongs reports whether a key means something where it stands.
func (r *reader) belongs(p pair, where place, field string) bool {
	switch {
	case keys[p.key].places&where != 0:
		return true
	case r.overridden > 0:
	case keys[p.key].ours:
		r.problem(p.name, field, "has no meaning here; it belongs into %s", p.key.home())
	default:
		r.warn(p.name.Line, p.name.Column, field, "has no meaning here and is ignored; it belongs into %s", p.key.home())
	}
	return false
}

// ignored checks the keys inside a value that means nothing where it stands.
func (r *reader) ignored(k key, n *yaml.Node, field string) {
	if k == keyMetadata || r.overridden > 0 {
		return
	}
	deeper := func(p pair, path string) { r.ignored(p.key, p.value, path) }
	switch n.Kind {
	case yaml.MappingNode:
		r.mapping(n, anywhere, field, deeper)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			r.mapping(target(item), anywhere, field, deeper)
		}
	}
}

// leaf checks what holds for values wherever they stand: lists are of mappings,
// and numbers are whole.
func (r *reader) leaf(k key, n *yaml.Node, field string) bool {
	if k == keyMetadata {
		return true
	}
	before := len(r.problems)
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			item = target(item)
			if item.Kind != yaml.MappingNode && !(r.overridden > 0 && isNull(item)) {
				r.problem(item, fmt.Sprintf("%s[%d]", field, i), "must be a mapping, not %s", describe(item))
			}
		}
	case yaml.ScalarNode:
		switch s := readScalar(n); {
		case s.kind == kindInvalid:
			r.problem(n, field, "%q contradicts its tag %s", n.Value, n.Tag)
		case r.overridden > 0:
		case s.kind == kindFloat:
			if k == keyRequestsPerUnit {
				r.problem(n, field, "must be a whole number, not %s", n.Value)
				break
			}
			r.problem(n, field, "%s is a number with a fraction or an exponent; quote it to make it a string: %q", n.Value, n.Value)
		case s.kind == kindUint:
			r.problem(n, field, "%s is larger than any integer; quote it to make it a string: %q", n.Value, n.Value)
		}
	}
	return len(r.problems) == before
}

// list gives the mappings of a list; null is an empty one.
func (r *reader) list(n *yaml.Node, field string) []*yaml.Node {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.problem(n, field, "must be a list, not %s", describe(n))
		return nil
	}
	items := make([]*yaml.Node, 0, len(n.Content))
	for _, item := range n.Content {
		if item = target(item); item.Kind == yaml.MappingNode {
			items = append(items, item)
		}
	}
	return items
}

// text reads a string: any scalar, as it is written. Null is empty. The string
// does not keep the file in memory.
func (r *reader) text(n *yaml.Node, field string, into *string) {
	if n.Kind != yaml.ScalarNode {
		r.problem(n, field, "must be a string, not %s", describe(n))
		return
	}
	*into = ""
	if s := readScalar(n); s.kind != kindNull {
		*into = strings.Clone(s.text)
	}
}

// flag reads a boolean; null is false.
func (r *reader) flag(n *yaml.Node, field string, into *bool) {
	s := scalar{kind: kindInvalid}
	if n.Kind == yaml.ScalarNode {
		s = readScalar(n)
	}
	if s.kind != kindBool && s.kind != kindNull {
		r.problem(n, field, "must be true or false, not %s", describe(n))
		return
	}
	*into = s.bool
}

// count reads a whole number of 0 to 2^32 - 1; null is 0.
func (r *reader) count(n *yaml.Node, field string, into *uint32) bool {
	s := scalar{kind: kindInvalid}
	if n.Kind == yaml.ScalarNode {
		s = readScalar(n)
	}
	switch {
	case s.kind == kindNull || s.kind == kindInt && s.int >= 0 && s.int <= math.MaxUint32:
		*into = uint32(s.int)
		return true
	case s.kind == kindInt:
		r.problem(n, field, "must be between 0 and %d, not %s", uint32(math.MaxUint32), n.Value)
	default:
		r.problem(n, field, "must be a whole number, not %s", describe(n))
	}
	return false
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && readScalar(n).kind == kindNull
}

// describe names a value in a message.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	s := readScalar(n)
	switch s.kind {
	case kindNull:
		return "null"
	case kindString:
		const most = 40
		text := s.text
		if len(text) > most {
			cut := most
			for cut > 0 && !utf8.RuneStart(text[cut]) {
				cut--
			}
			text = text[:cut] + "…"
		}
		return fmt.Sprintf("the string %q", text)
	}
	return n.Value
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}
