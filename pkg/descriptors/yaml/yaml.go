// Package yaml reads rules from text: YAML to [rules.File].
//
// The dialect is YAML 1.1 as envoyproxy/ratelimit reads it: yes and off are
// booleans, 1_000 is an integer, 010 is eight and 08 is a float. The package
// promises that it never fails: a text that is not valid YAML gives a File with
// a problem and its position. It leaves the keys of the language to package
// rules.
package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// Text is one file of rules.
type Text struct {
	Name    string // for messages
	Content []byte // only the first document counts
	Overlay bool   // it has overlays and no rules
}

// Options are those of [rules.Load].
type Options = rules.Options

// Load reads texts and compiles their rules. See [rules.Load].
func Load(texts []Text, opts Options) (*descriptors.Tree, []rules.Problem, error) {
	return rules.Load(ReadAll(texts), opts)
}

// ReadAll reads texts, several at once (see [descriptors.Each]).
func ReadAll(texts []Text) []*rules.File {
	return descriptors.Each(texts, Read)
}

// Read reads one text.
func Read(t Text) *rules.File {
	r := newReader(t.Name)
	r.file.Overlay = t.Overlay
	return r.read(t.Content, partSize)
}

// read reads a text, a long one in parts of that size.
func (r *reader) read(content []byte, size int) *rules.File {
	if first, line := cutDocument(content); line > 0 {
		content = first
		r.file.Warnings.Add(r.at(line, 1), "", "a second document is ignored; put it in a file of its own")
	}
	if root := r.inParts(content, size); root != nil {
		r.file.Root = root
		return r.file
	}
	doc, rest, err := unmarshal(content)
	switch {
	case errors.Is(err, io.EOF):
		return r.file
	case err != nil:
		at, message := r.syntaxError(content, err)
		r.file.Problems.Add(at, "", "not valid YAML: %s", message)
		return r.file
	}
	root := doc.Content[0]
	if !r.expandable(root) {
		return r.file
	}
	if rest != nil && !errors.Is(rest, io.EOF) {
		at, _ := r.syntaxError(content, rest)
		where := "after the end of the rules is ignored"
		if root.Style&yaml.FlowStyle == 0 && at.Column < root.Column {
			where = "further to the left than the file's first key is ignored, with all that follows"
		}
		r.file.Warnings.Add(at, "", "what stands %s", where)
	}
	value := r.value(root)
	r.file.Root = &value
	return r.file
}

// reader turns the nodes of one text into values.
type reader struct {
	file    *rules.File
	aliased map[*yaml.Node]document.Value // of the anchors that were read
	turns   descriptors.Turns
	lines   int // before the part of the text that is being read

	// Of the nodes with their aliases expanded, see extent:
	written int
	sizes   map[*yaml.Node]extent // of the targets of aliases; zero while being counted
	cycle   *yaml.Node            // an alias inside its own target
}

func newReader(name string) *reader {
	return &reader{file: &rules.File{Name: name}, aliased: map[*yaml.Node]document.Value{}, sizes: map[*yaml.Node]extent{}}
}

func (r *reader) at(line, column int) document.Position {
	return document.Position{File: r.file.Name, Line: r.lines + line, Column: column}
}

// unmarshal reads the first document of content; err is io.EOF when there is
// none. rest is the parser's error when it is asked to go on: io.EOF unless it
// stopped before the end of content. A panic of the parser becomes an error,
// because rule files come from outside.
func unmarshal(content []byte) (doc yaml.Node, rest, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the parser failed: %v", p)
		}
	}()
	// The parser reads 512 bytes at a time, so that it gives way about every 40 µs.
	decoder := yaml.NewDecoder(descriptors.Yielding(bytes.NewReader(content)))
	if err = decoder.Decode(&doc); err == nil {
		rest = decoder.Decode(new(yaml.Node))
	}
	return doc, rest, err
}

var parserError = regexp.MustCompile(`(?s)^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// indentingTab ends at a tab before the first word of a line, also behind the dash of a list.
var indentingTab = regexp.MustCompile(`^[ -]*\t`)

// syntaxError finds the position and the message of an error of the parser,
// which names a line at most.
func (r *reader) syntaxError(content []byte, err error) (at document.Position, message string) {
	found := parserError.FindStringSubmatch(err.Error())
	message = found[2]
	line, err := strconv.Atoi(found[1])
	if err != nil {
		line = 1
	} else if strings.HasPrefix(message, "did not find expected") {
		line++ // the parser counts lines from 0 in these messages, and from 1 in others
	}
	lines := bytes.SplitN(content, []byte("\n"), line+2)
	if strings.Contains(message, "tab character") || strings.Contains(message, "cannot start any token") {
		for i := line; i <= min(line+1, len(lines)); i++ { // the parser may name the line before
			if tab := indentingTab.FindIndex(lines[i-1]); tab != nil {
				return r.at(i, tab[1]), "a tab indents this line; use spaces"
			}
		}
	}
	column := 1
	if line <= len(lines) {
		text := lines[line-1]
		column += len(text) - len(bytes.TrimLeft(text, " \t"))
	}
	return r.at(line, column), message
}

// cutDocument returns the first document of content and the line, counted from
// 1, on which a second one starts, or 0. A line that starts with --- separates
// documents wherever it stands; a line with ... ends a document.
func cutDocument(content []byte) (first []byte, line int) {
	rest := bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	started, ended := false, false
	for line := 1; len(rest) > 0; line++ {
		at := len(content) - len(rest)
		text, after, _ := bytes.Cut(rest, []byte("\n"))
		rest = after
		own := bytes.TrimSpace(text)
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
		case len(own) == 0 || own[0] == '#':
		case ended:
			return content[:at], line
		case text[0] != '%':
			started = true
		}
	}
	return content, 0
}
