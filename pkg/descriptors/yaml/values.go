package yaml

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors/rules"
)

const (
	// maxAliased is how many nodes the aliases of a file may add to it. A few
	// lines can otherwise expand without bound.
	maxAliased = 2_000_000
	// maxNested bounds how deep values stand in each other. A descriptor is a
	// list in a mapping, so it is reached after the bound of package rules.
	maxNested = 3 * rules.MaxDepth
)

// expandable reports whether the aliases below root can be expanded. If not it
// adds a problem.
func (r *reader) expandable(root *yaml.Node) bool {
	size := r.extent(root)
	switch {
	case r.cycle != nil:
		r.file.Problems.Add(r.at(r.cycle.Line, r.cycle.Column), "", "*%s is used inside the value that it stands for", r.cycle.Value)
	case size.nodes-r.written > maxAliased:
		r.file.Problems.Add(r.at(root.Line, root.Column), "", "the aliases of this file stand for more than %d values; write fewer", maxAliased)
	case size.depth > maxNested:
		r.file.Problems.Add(r.at(root.Line, root.Column), "", "values stand more than %d deep in each other", maxNested)
	default:
		return true
	}
	return false
}

// extent is the number of nodes of a value, the value included, and how deep
// they stand in each other.
type extent struct{ nodes, depth int }

// extent walks n once: an anchor comes before its aliases.
func (r *reader) extent(n *yaml.Node) extent {
	const tooMany = 1 << 40 // far from overflow
	r.written++
	r.turns.Next()
	if n.Kind == yaml.AliasNode {
		size := r.sizes[n.Alias]
		if size.nodes == 0 {
			r.cycle = n
		}
		return extent{1 + size.nodes, size.depth}
	}
	if n.Anchor != "" {
		r.sizes[n] = extent{}
	}
	total := extent{1, 0}
	for _, c := range n.Content {
		below := r.extent(c)
		total = extent{min(total.nodes+below.nodes, tooMany), max(total.depth, below.depth)}
	}
	total.depth++
	if n.Anchor != "" {
		r.sizes[n] = total
	}
	return total
}

// value turns a node into a value, aliases and merge keys (<<) resolved.
func (r *reader) value(n *yaml.Node) document.Value {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
		if v, ok := r.aliased[n]; ok {
			return v
		}
	}
	if n.Kind == yaml.ScalarNode {
		return r.scalar(n)
	}
	r.turns.Next()
	v := document.Value{Kind: document.List, At: r.at(n.Line, n.Column), Content: make([]document.Value, 0, len(n.Content))}
	if n.Kind == yaml.MappingNode {
		v.Kind = document.Map
		for i := 0; i < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if key.Kind == yaml.ScalarNode && key.Value == "<<" && key.Tag == "!!merge" {
				v.Content = r.merge(v.Content, key, value)
				continue
			}
			v.Content = append(v.Content, r.value(key), r.value(value))
		}
	} else {
		for _, item := range n.Content {
			v.Content = append(v.Content, r.value(item))
		}
	}
	if n.Anchor != "" {
		r.aliased[n] = v
	}
	return v
}

// merge appends the pairs that a merge key stands for. As rules have always
// been read, the last of equal keys wins, merged or written; of a list of merged
// mappings the first one wins.
func (r *reader) merge(content []document.Value, key, from *yaml.Node) []document.Value {
	v := r.value(from)
	sources := []document.Value{v}
	if v.Kind == document.List && from.Kind != yaml.AliasNode {
		sources = v.Content
	}
	for i := len(sources) - 1; i >= 0; i-- {
		if sources[i].Kind != document.Map {
			wrong := document.Value{Kind: document.Wrong, Text: "<< needs a mapping or a list of mappings", At: r.at(key.Line, key.Column)}
			return append(content, wrong, wrong)
		}
		content = append(content, sources[i].Content...)
	}
	return content
}

// scalar finds the meaning of a scalar. The parser has given each one a tag,
// the written one or the one that YAML 1.2 sees in the text.
func (r *reader) scalar(n *yaml.Node) document.Value {
	at := r.at(n.Line, n.Column)
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	plain := n.Style&(quoted|yaml.TaggedStyle) == 0
	if is, old := oldBooleans[n.Value]; old && (plain || n.Tag == "!!bool") {
		return document.Scalar(at, n.Value, is)
	}
	switch n.Tag {
	case "!!null", "!!bool", "!!int", "!!float", "!!binary":
	default:
		return document.Text(at, n.Value)
	}
	if i, err := strconv.Atoi(n.Value); err == nil && plain && n.Value[0] >= '1' { // neither a sign nor octal
		return document.Scalar(at, n.Value, int64(i))
	}
	var is any
	if err := n.Decode(&is); err != nil {
		return document.Value{Kind: document.Wrong, Text: fmt.Sprintf("%q contradicts its tag %s", n.Value, n.Tag), At: at}
	}
	switch is := is.(type) {
	case string: // of !!binary
		return document.Text(at, is)
	case int:
		return document.Scalar(at, n.Value, int64(is))
	}
	return document.Scalar(at, n.Value, is)
}

// oldBooleans are the booleans of YAML 1.1 that YAML 1.2 takes for strings.
var oldBooleans = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}
