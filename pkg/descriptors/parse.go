package descriptors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	doc, rest, err := unmarshal(content)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		r.problems = append(r.problems, syntaxProblem(r.file, content, err))
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
	if rest != nil && !errors.Is(rest, io.EOF) {
		r.warnOfRest(root, syntaxProblem(r.file, content, rest).Position)
	}
	return root
}

// warnOfRest warns of what stands at pos, where the parser stopped.
func (r *reader) warnOfRest(root *yaml.Node, pos Position) {
	what := "after the end of the rules is ignored"
	if root.Style&yaml.FlowStyle == 0 && pos.Column < root.Column {
		what = "further to the left than the file's first key is ignored, with all that follows"
	}
	r.warn(pos.Line, pos.Column, "", "what stands %s", what)
}

// unmarshal reads the first document of content; err is io.EOF when there is
// none. rest is what the parser says when it is asked to go on: io.EOF unless it
// stopped earlier. Its panics, should there be any, become errors: rule files
// come from outside.
func unmarshal(content []byte) (doc yaml.Node, rest, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser failed: %v", p)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err = decoder.Decode(&doc); err == nil {
		rest = decoder.Decode(new(yaml.Node))
	}
	return doc, rest, err
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
		case isBlank(text):
		case ended:
			return content[:at], line
		case text[0] != '%':
			started = true
		}
	}
	return content, 0
}

// isBlank reports whether a line has nothing but a comment, if that.
func isBlank(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
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
