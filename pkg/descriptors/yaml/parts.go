package yaml

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
)

// partSize is the least number of bytes of a part.
const partSize = 64 << 10

var descriptorsKey = regexp.MustCompile(`(?m)^descriptors:[ \t]*(?:#.*)?\n`)

// inParts reads a text with a long list of descriptors in parts of the list, several at once, because
// the nodes of the library take 20 times the bytes of the text. It returns nil where only the
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
	head, rest := content[:key[1]], content[key[1]:]
	root := r.readPart(part{head, 0}, yaml.MappingNode, 1)
	if root == nil || len(root.Content) == 0 {
		return nil
	}
	last := len(root.Content) - 1
	if k, v := &root.Content[last-1], &root.Content[last]; k.Text != "descriptors" || v.Kind != document.Null || v.Text != "" {
		return nil
	}
	items, column, tail := cutList(rest, bytes.Count(head, []byte("\n")), size)
	lists := descriptors.Each(items, func(p part) *document.Value { return r.readPart(p, yaml.SequenceNode, column) })
	if len(items) == 0 || slices.Contains(lists, nil) {
		return nil
	}
	list := document.Value{Kind: document.List, At: lists[0].At}
	for _, read := range lists {
		list.Content = append(list.Content, read.Content...)
	}
	root.Content[last] = list
	if len(tail.text) > 0 {
		more := r.readPart(tail, yaml.MappingNode, 1)
		if more == nil {
			return nil
		}
		root.Content = append(root.Content, more.Content...)
	}
	return root
}

// part is a part of a text, behind so many lines.
type part struct {
	text  []byte
	lines int
}

// cutList cuts the list in block style with which a text begins, behind so many lines, into parts of at
// least size bytes. It returns the column of its items and what stands behind it. Without such a
// list there are no parts.
func cutList(text []byte, lines, size int) (parts []part, column int, rest part) {
	start, first := 0, lines // of the part
	end := 0
	for ; end < len(text); end += len(lineOf(text[end:])) {
		line := lineOf(text[end:])
		own := bytes.TrimLeft(line, " ")
		at := len(line) - len(own) + 1
		item := len(own) > 1 && own[0] == '-' && (own[1] == ' ' || own[1] == '\n')
		switch blank := len(own) == 0 || own[0] == '\n' || own[0] == '#'; {
		case blank:
		case column == 0 && !item:
			return nil, 0, rest
		case column == 0:
			column = at
		case at == column && item && end-start >= size:
			parts = append(parts, part{text[start:end], first})
			start, first = end, lines
		case at < column, at == column && !item:
			return append(parts, part{text[start:end], first}), column, part{text[end:], lines}
		}
		lines++
	}
	return append(parts, part{text[start:], first}), column, rest
}

// lineOf is the first line of text, with its line break.
func lineOf(text []byte) []byte {
	return text[:cmp.Or(bytes.IndexByte(text, '\n')+1, len(text))]
}

// readPart reads a part. It returns nil unless the part is one value in block style of a kind that
// stands in a column.
func (r *reader) readPart(p part, kind yaml.Kind, column int) *document.Value {
	doc, rest, err := unmarshal(p.text)
	if err != nil || !errors.Is(rest, io.EOF) {
		return nil
	}
	own := newReader(r.file.Name)
	own.lines = p.lines
	n := doc.Content[0]
	if n.Kind != kind || n.Column != column || n.Style&yaml.FlowStyle != 0 || own.extent(n).depth > maxNested-2 {
		return nil
	}
	v := own.value(n)
	return &v
}
