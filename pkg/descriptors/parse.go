package descriptors

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxAliased is how many nodes the aliases of a file may add to it. A few lines
// can otherwise expand without bound.
const maxAliased = 2_000_000

// parse reads the first document of a file; nil when the file is empty. A
// document whose aliases cannot be expanded is a problem too, so that whoever
// walks it need not look out.
func (r *reader) parse(content []byte) *yaml.Node {
	if first, line := cutDocument(content); line > 0 {
		content = first
		r.warn(line, 1, "", "a second document is ignored; put it in a file of its own")
	}
	if root, ok := parsePlain(content, &r.nodes); ok {
		return root
	}
	doc, err := unmarshal(content)
	if err != nil {
		r.problems = append(r.problems, syntaxProblem(r.file, content, err))
		return nil
	}
	if len(doc.Content) == 0 {
		return nil
	}
	root := doc.Content[0]
	e := expansion{sizes: make(map[*yaml.Node]int)}
	size := e.size(root)
	switch {
	case e.cycle != nil:
		r.problem(e.cycle, "", "*%s is used inside the value that it stands for", e.cycle.Value)
		return nil
	case size-e.written > maxAliased:
		r.problem(root, "", "the aliases of this file stand for more than %d values; write fewer", maxAliased)
		return nil
	}
	if line, column := leftOver(content, root); line > 0 {
		r.warn(line, column, "", "what stands further to the left than the file's first key is ignored, with all that follows")
	}
	return root
}

// leftOver is where content has a line that stands further to the left than
// the mapping that is its document, or 0: there the document ends.
func leftOver(content []byte, root *yaml.Node) (line, column int) {
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 || root.Column == 1 {
		return 0, 0
	}
	last := lastLine(root)
	for text := range bytes.Lines(content) {
		line++
		column = 1 + len(text) - len(bytes.TrimLeft(text, " "))
		text = bytes.TrimSpace(text)
		if line > last && column < root.Column && len(text) > 0 && text[0] != '#' && string(text) != "..." {
			return line, column
		}
	}
	return 0, 0
}

// lastLine is that of the last node of a document.
func lastLine(n *yaml.Node) int {
	if len(n.Content) == 0 {
		return n.Line
	}
	return max(n.Line, lastLine(n.Content[len(n.Content)-1]))
}

// unmarshal turns the parser's panics, should there be any, into errors: rule
// files come from outside.
func unmarshal(content []byte) (doc yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser failed: %v", p)
		}
	}()
	err = yaml.Unmarshal(content, &doc)
	return doc, err
}

// syntaxProblem places an error of the YAML parser, which names a line at most.
func syntaxProblem(file string, content []byte, err error) Problem {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if digits, rest, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				line, message = n, rest
			}
		}
		// The parser counts lines from 0 in these, and from 1 in others.
		if strings.HasPrefix(message, "did not find expected") {
			line++
		}
	}
	lines := bytes.SplitN(content, []byte("\n"), line+1)
	column := 1
	if line <= len(lines) {
		text := lines[line-1]
		column += len(text) - len(bytes.TrimLeft(text, " \t"))
	}
	return Problem{Position{file, line, column}, "", "not valid YAML: " + message}
}

// cutDocument is the first document of content and the line, counted from 1,
// on which a second starts, or 0. A line that starts with --- separates
// documents wherever it stands; one with ... ends a document.
func cutDocument(content []byte) (first []byte, line int) {
	rest := bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	started, ended := false, false
	for line := 1; len(rest) > 0; line++ {
		at := len(content) - len(rest)
		text, after, _ := bytes.Cut(rest, []byte("\n"))
		rest = after
		marked := func(with string) bool {
			return bytes.HasPrefix(text, []byte(with)) && (len(text) == 3 || bytes.IndexByte([]byte(" \t\r"), text[3]) >= 0)
		}
		switch {
		case marked("---") && started:
			return content[:at], line
		case marked("---"):
			started = true
		case marked("..."):
			ended = started
		case ended && len(bytes.TrimSpace(text)) > 0 && text[0] != '#':
			return content[:at], line
		case len(text) > 0 && text[0] != '#' && text[0] != '%':
			started = started || len(bytes.TrimSpace(text)) > 0
		}
	}
	return content, 0
}

// expansion counts the nodes of a document with its aliases expanded.
type expansion struct {
	written int
	sizes   map[*yaml.Node]int // of the targets of aliases; 0 while being counted
	cycle   *yaml.Node         // an alias inside its own target
}

// size is 1 and the sizes of what n contains. Anchors come before their
// aliases, so that one walk suffices.
func (e *expansion) size(n *yaml.Node) int {
	const tooMany = 1 << 40 // far from overflow
	e.written++
	if n.Kind == yaml.AliasNode {
		size := e.sizes[n.Alias]
		if size == 0 {
			e.cycle = n
		}
		return 1 + size
	}
	if n.Anchor != "" {
		e.sizes[n] = 0
	}
	total := 1
	for _, c := range n.Content {
		total = min(total+e.size(c), tooMany)
	}
	if n.Anchor != "" {
		e.sizes[n] = total
	}
	return total
}

// target is what n stands for.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
