package descriptors

import (
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// parsePlain reads the part of YAML that nearly all rules are written in, ten
// times as fast as the YAML library: block mappings and lists, mappings in
// braces on one line, comments, and strings without escapes. It gives the
// nodes that the library would (a fuzz test holds it to that), and false when
// the file has anything else, right or wrong: then the library reads it.
//
// Without it, 100,000 rules would take more than a second to load.
//
// Its nodes are taken from nodes, and are gone when that is recycled.
func parsePlain(content []byte, nodes *nodePool) (*yaml.Node, bool) {
	p := plain{text: string(content), nodes: nodes}
	for i := range len(p.text) {
		if c := p.text[i]; c != '\n' && (c < ' ' || c > '~') {
			return nil, false
		}
	}
	p.advance()
	if !p.more || p.indent != 0 {
		return nil, false
	}
	root := p.mapping(0)
	return root, !p.failed && !p.more
}

// plain is the state of parsePlain. Once failed is set, more is not, and what
// is returned is of no use.
type plain struct {
	text string // the file
	next int    // where the line after this one starts
	line int    // of the current line, from 1

	// The current line, which is neither empty nor a comment, from indent on.
	// more is false at the end.
	rest   string
	indent int
	more   bool
	failed bool

	turns   turns
	nodes   *nodePool
	content []*yaml.Node // of the mappings and lists that are being read
}

// maxPlainIndent keeps recursion shallow.
const maxPlainIndent = 500

func (p *plain) fail() { p.failed, p.more = true, false }

// advance goes to the next line.
func (p *plain) advance() {
	p.more = false
	for !p.failed && p.next < len(p.text) {
		line, _, _ := strings.Cut(p.text[p.next:], "\n")
		p.turns.next()
		p.next += len(line) + 1
		p.line++
		p.rest = strings.TrimLeft(line, " ")
		if p.rest == "" || p.rest[0] == '#' {
			continue
		}
		p.indent = len(line) - len(p.rest)
		p.more = true
		if p.indent > maxPlainIndent {
			p.fail()
		}
		return
	}
}

// take skips n bytes of the current line and the blanks after them.
func (p *plain) take(n int) {
	rest := strings.TrimLeft(p.rest[n:], " ")
	p.indent += len(p.rest) - len(rest)
	p.rest = rest
}

func (p *plain) node(kind yaml.Kind) *yaml.Node {
	n := p.nodes.take()
	n.Kind, n.Line, n.Column = kind, p.line, p.indent+1
	return n
}

// finish gives n the content that was read since base.
func (p *plain) finish(n *yaml.Node, base int) *yaml.Node {
	n.Content = append(n.Content, p.content[base:]...)
	p.content = p.content[:base]
	return n
}

func (p *plain) dash() bool { return strings.HasPrefix(p.rest, "- ") }

// mapping reads the keys that stand at indent, of which the first is current.
func (p *plain) mapping(indent int) *yaml.Node {
	n, base := p.node(yaml.MappingNode), len(p.content)
	for p.more && p.indent == indent && p.rest[0] != '-' {
		p.content = append(p.content, p.key())
		if p.failed {
			return n
		}
		if p.rest != "" && p.rest[0] != '#' {
			p.content = append(p.content, p.value(false))
			p.end()
			continue
		}
		null := p.node(yaml.ScalarNode)
		null.Column = p.content[len(p.content)-1].Column + len(p.content[len(p.content)-1].Value) + 1
		p.advance()
		switch {
		case p.more && p.indent > indent && !p.dash():
			p.content = append(p.content, p.mapping(p.indent))
		case p.more && p.indent >= indent && p.dash():
			p.content = append(p.content, p.list(p.indent))
		default:
			p.content = append(p.content, null)
		}
	}
	if p.more && (p.indent > indent || p.indent == indent && !p.dash()) {
		p.fail()
	}
	return p.finish(n, base)
}

// list reads the items whose dashes stand at indent.
func (p *plain) list(indent int) *yaml.Node {
	n, base := p.node(yaml.SequenceNode), len(p.content)
	for p.more && p.indent == indent && p.dash() {
		p.take(1)
		switch {
		case p.rest == "" || p.rest[0] == '#' || p.rest[0] == '-':
			p.fail()
		case p.rest[0] == '{':
			p.content = append(p.content, p.value(false))
			p.end()
		default:
			p.content = append(p.content, p.mapping(p.indent))
		}
	}
	return p.finish(n, base)
}

// key reads a key and its colon.
func (p *plain) key() *yaml.Node {
	n := p.node(yaml.ScalarNode)
	i := 0
	for i < len(p.rest) && (p.rest[i] >= 'a' && p.rest[i] <= 'z' || p.rest[i] == '_') {
		i++
	}
	const maxKey = 64 // the library has a limit, well above
	if i == 0 || i > maxKey || i == len(p.rest) || p.rest[i] != ':' || i+1 < len(p.rest) && p.rest[i+1] != ' ' {
		p.fail()
		return n
	}
	n.Value = p.rest[:i]
	p.take(i + 1)
	return n
}

// end is the end of a line after a value.
func (p *plain) end() {
	if p.rest != "" && (p.rest[0] != '#' || p.text[p.next-len(p.rest)-2] != ' ') {
		p.fail()
		return
	}
	p.advance()
}

// value reads a scalar or a mapping in braces.
func (p *plain) value(inBraces bool) *yaml.Node {
	if p.rest == "" {
		p.fail()
		return nil
	}
	switch p.rest[0] {
	case '{':
		return p.braces()
	case '"':
		return p.quoted(yaml.DoubleQuotedStyle, `"\`)
	case '\'':
		return p.quoted(yaml.SingleQuotedStyle, `'`)
	}
	n := p.node(yaml.ScalarNode)
	i := 0
	for i < len(p.rest) && inWord(p.rest, i, inBraces) {
		i++
	}
	if i == 0 {
		p.fail()
		return n
	}
	if after := p.rest[i:]; after != "" && after[0] != ' ' && !(inBraces && (after[0] == ',' || after[0] == '}')) {
		p.fail()
		return n
	}
	n.Value = p.rest[:i]
	p.take(i)
	return n
}

// inWord reports whether the byte at i may stand there in a string without
// quotes: only where YAML sees nothing but a letter in it.
func inWord(s string, i int, inBraces bool) bool {
	switch c := s[i]; {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '/', c == '.':
		return true
	case c == '-', c == '*', c == '+':
		return i > 0
	case c == ',', c == '@', c == '=':
		return i > 0 && !inBraces
	case c == ':': // a key's colon is followed by a blank
		return i > 0 && !inBraces && i+1 < len(s) && s[i+1] != ' '
	}
	return false
}

// quoted reads a string in quotes, without what the quotes escape.
func (p *plain) quoted(style yaml.Style, stop string) *yaml.Node {
	n := p.node(yaml.ScalarNode)
	n.Style = style
	i := strings.IndexAny(p.rest[1:], stop)
	// Something else right after the closing quote may be an escape, or a key.
	if i < 0 || p.rest[1+i] != stop[0] || i+2 < len(p.rest) && strings.IndexByte(" ,}", p.rest[i+2]) < 0 {
		p.fail()
		return n
	}
	n.Value = p.rest[1 : 1+i]
	p.take(i + 2)
	return n
}

// braces reads a mapping in braces, which ends on its line.
func (p *plain) braces() *yaml.Node {
	n, base := p.node(yaml.MappingNode), len(p.content)
	p.take(1)
	for !p.failed {
		p.content = append(p.content, p.key())
		if p.failed {
			break
		}
		p.content = append(p.content, p.value(true))
		if p.failed || p.rest == "" {
			p.fail()
			break
		}
		separator := p.rest[0]
		p.take(1)
		if separator == '}' {
			return p.finish(n, base)
		}
		if separator != ',' {
			p.fail()
		}
	}
	return n
}

// nodePool hands nodes out one by one. They are most of what a load allocates;
// were they not used again by the next one, each reload of ten thousand rules
// would bring on a collection of garbage, which callers feel.
type nodePool struct {
	slabs []*slab
	taken int // of the last slab
}

type slab [256]yaml.Node

var slabs = sync.Pool{New: func() any { return new(slab) }}

func (p *nodePool) take() *yaml.Node {
	if len(p.slabs) == 0 || p.taken == len(slab{}) {
		p.slabs, p.taken = append(p.slabs, slabs.Get().(*slab)), 0
	}
	p.taken++
	return &p.slabs[len(p.slabs)-1][p.taken-1]
}

// recycle takes all nodes back.
func (p *nodePool) recycle() {
	for _, s := range p.slabs {
		clear(s[:])
		slabs.Put(s)
	}
	p.slabs = nil
}
