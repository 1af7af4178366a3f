package yaml

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/document"
)

// partSize is the least number of bytes of a part.
const partSize = 64 << 10

var descriptorsKey = regexp.MustCompile(`(?m)^descriptors:[ \t]*(?:#.*)?\n`)

// inParts reads a text with a long list of descriptors in parts of the list, because the
// nodes of the library take 20 times the bytes of the text. It returns nil where only the
// whole text has a meaning: if it has anchors, line breaks of YAML alone, or a mistake, or
// if a part is not a list of its own.
func (r *reader) inParts(content []byte, size int) *document.Value {
	key := descriptorsKey.FindIndex(content)
	if len(content) < 4*size || key == nil {
		return nil
	}
	for _, odd := range []string{"&", "\r", "\u0085", "\u2028", "\u2029"} {
		if bytes.Contains(content, []byte(odd)) {
			return nil
		}
	}
	defer func() { r.lines, r.written = 0, 0 }()
	head := r.part(content[:key[1]], yaml.MappingNode, 1)
	if head == nil || len(head.Content) == 0 {
		return nil
	}
	last := len(head.Content) - 1
	if head.Content[last-1].Value != "descriptors" || head.Content[last].Tag != "!!null" {
		return nil
	}
	root := r.value(head)
	list := document.Value{Kind: document.List}
	r.lines = bytes.Count(content[:key[1]], []byte("\n"))
	take := func(part []byte, column int) bool {
		n := r.part(part, yaml.SequenceNode, column)
		if n == nil {
			return false
		}
		v := r.value(n)
		r.lines += bytes.Count(part, []byte("\n"))
		if list.Content == nil {
			list.At = v.At
		}
		list.Content = append(list.Content, v.Content...)
		return true
	}
	body := content[key[1]:]
	indent, start, end := -1, 0, 0
lines:
	for ; end < len(body); end += len(lineOf(body[end:])) {
		line := lineOf(body[end:])
		own := bytes.TrimLeft(line, " ")
		column := len(line) - len(own)
		item := len(own) > 1 && own[0] == '-' && (own[1] == ' ' || own[1] == '\n')
		switch {
		case len(own) == 0 || own[0] == '\n' || own[0] == '#':
		case indent < 0 && !item:
			return nil
		case indent < 0:
			indent = column
		case column < indent || column == indent && !item:
			break lines
		case column == indent && end-start >= size:
			if !take(body[start:end], indent+1) {
				return nil
			}
			start = end
		}
	}
	if !take(body[start:end], indent+1) {
		return nil
	}
	root.Content[last] = list
	if end < len(body) {
		tail := r.part(body[end:], yaml.MappingNode, 1)
		if tail == nil {
			return nil
		}
		root.Content = append(root.Content, r.value(tail).Content...)
	}
	return &root
}

// lineOf is the first line of text, with its line break.
func lineOf(text []byte) []byte {
	return text[:cmp.Or(bytes.IndexByte(text, '\n')+1, len(text))]
}

// part reads a part of a text, whose first line follows r.lines. It returns nil unless it
// is one value in block style of a kind that stands in a column.
func (r *reader) part(text []byte, kind yaml.Kind, column int) *yaml.Node {
	doc, rest, err := unmarshal(text)
	if err != nil || !errors.Is(rest, io.EOF) {
		return nil
	}
	n := doc.Content[0]
	if n.Kind != kind || n.Column != column || n.Style&yaml.FlowStyle != 0 || r.extent(n).depth > maxNested-2 {
		return nil
	}
	return n
}
