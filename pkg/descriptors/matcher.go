package descriptors

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// By is the way in which a descriptor of the rules matches an entry: one of these, or the
// name of a kind of match, such as cidr.
type By string

// The ways without match. Nothing says that none matched.
const (
	Exact    By = "exact"    // the entry's key and value
	Wildcard By = "wildcard" // a '*' in key or value
	Key      By = "key"      // the entry's key, and no value
	Nothing  By = "none"
)

// rank is the precedence of a way: at each depth, descriptors of the first rank that has one
// for the entry go before all others.
type rank int

const (
	byValue   rank = iota // one value, or one of several
	byNetwork             // the longest prefix goes first
	inOrder               // wildcards and other matchers: the first in the order of the rules
	byKey
	noRank
)

// won says why the descriptor that took an entry in a way of that rank goes first.
var won = [noRank]string{
	byValue: "it has the entry's key and value", byNetwork: "its network is the longest that has the address",
	inOrder: "it is the first descriptor whose wildcards match", byKey: "it has the entry's key and no value",
}

// Kind is a kind of match.
type Kind struct {
	Name By
	List bool   // it has several texts
	What string // for documents
	Note string // for documents; may be ""

	rank rank
	// says is what a value of the kind does, and not the opposite.
	says, not string
	// compile sets the fields of m that find its values. If a text is wrong, it returns the
	// text's index and an error that says what would be right.
	compile func(m *Match, texts []string) (item int, err error)
	// put adds a descriptor, whose key has no wildcard, to the index of its parent, unless
	// another one has a text of it already, the one with that index. Kinds of the rank inOrder
	// have none.
	put func(n *Node) (other *Node, item int)
}

// Kinds are the kinds of match. A further kind is a file and a row; docs, JSON Schema and
// messages follow from the row.
var Kinds = [...]Kind{
	{Name: "values", List: true, What: "several values, for which `*` stands for itself",
		says: "the entry's value is in its list", not: "the entry's value is not in its list",
		rank: byValue, compile: compileValues, put: putValues},
	{Name: "prefix", What: "the text that values begin with",
		says: "the entry's value begins with its text", not: "the entry's value does not begin with its text",
		rank: inOrder, compile: compileAffix(atStart)},
	{Name: "suffix", What: "the text that values end with",
		says: "the entry's value ends with its text", not: "the entry's value does not end with its text",
		rank: inOrder, compile: compileAffix(atEnd)},
	{Name: "contains", What: "a text that values have in any place",
		says: "the entry's value has its text", not: "the entry's value does not have its text",
		rank: inOrder, compile: compileAffix(anywhere)},
	{Name: "regex", What: "a regular expression ([RE2](https://github.com/google/re2/wiki/Syntax)) that fits the whole value", Note: "at most 1,000 bytes",
		says: "the entry's value fits its expression", not: "the entry's value does not fit its expression",
		rank: inOrder, compile: compileRegex},
	{Name: "cidr", List: true, What: "networks of IPv4 and IPv6, such as `10.0.0.0/8`", Note: "an IPv4-mapped address counts as IPv4; an address with a port or a zone is in no network",
		says: "the entry's value is an address of its networks", not: "the entry's value is no address of its networks",
		rank: byNetwork, compile: compileNetworks, put: putNetworks},
}

// Match says which values a descriptor takes: the field match of the rules.
type Match struct {
	// Text names the match in paths of rules: not:KIND:TEXT, or KIND/i:TEXT if it ignores case.
	// Of several texts it has the first, and the number of the others: cidr:10.0.0.0/8+1.
	Text string
	// Sum is the same for matches of the same values that are written alike, in any order.
	Sum [sha256.Size]byte

	kind     *Kind
	negated  bool
	fold     bool // the case of letters makes no difference
	id       string
	literal  literal
	verify   func(value string) bool // nil: the literal decides
	texts    []string                // of values
	networks []netip.Prefix          // of cidr, until the descriptor is in its tree
}

// NewMatch returns the match of a kind, or of all values but those if negated is true. If it
// is nil, texts[item] is wrong, and the error says what would be right.
func NewMatch(kind *Kind, texts []string, negated, ignoreCase bool) (m *Match, item int, err error) {
	if len(texts) == 0 {
		return nil, 0, errors.New("must have at least one text")
	}
	for i, text := range texts {
		if text == "" {
			return nil, i, errors.New("must not be empty")
		}
	}
	m = &Match{kind: kind, negated: negated, fold: ignoreCase}
	if item, err = kind.compile(m, texts); err != nil {
		return nil, item, err
	}
	name := string(kind.Name)
	if negated {
		name = "not:" + name
	}
	if ignoreCase {
		name += "/i"
	}
	first, more := texts[0], ""
	if len(texts) > 1 {
		more = fmt.Sprintf("+%d", len(texts)-1)
	}
	m.Text = name + ":" + first + more
	id := appendEscaped([]byte(name+":"), first, inValue)
	if kind.List { // tells "a+1" from "a" and one more
		id = []byte(strings.ReplaceAll(string(id), "+", "%2B") + more)
	}
	m.id = string(id)
	h := sha256.New()
	fmt.Fprintf(h, "%s", name)
	for _, text := range slices.Sorted(slices.Values(texts)) {
		fmt.Fprintf(h, "\x00%s", text)
	}
	h.Sum(m.Sum[:0])
	return m, 0, nil
}

// rank is the rank of a descriptor with the match, in whose key there is no wildcard.
func (m *Match) rank() rank {
	if m.negated {
		return inOrder
	}
	return m.kind.rank
}

// By is the way in which the match matches.
func (m *Match) By() By {
	if m.negated {
		return "not"
	}
	return m.kind.Name
}

// Exact reports whether the match has single values.
func (m *Match) Exact() bool { return m.rank() == byValue }

// Takes reports whether the match has the value.
func (m *Match) Takes(value string) bool {
	if !m.fold {
		return m.takes(value, nil)
	}
	var room [foldRoom]byte
	return m.takes(value, appendFolded(room[:0], value))
}

// takes is Takes; folded is the value as appendFolded has it if the match ignores case.
func (m *Match) takes(value string, folded []byte) bool {
	is := m.fold && standsIn(m.literal, folded) || !m.fold && standsIn(m.literal, value)
	return (is && (m.verify == nil || m.verify(value))) != m.negated
}

// says is why the match takes a value, or why not.
func (m *Match) says(takes bool) string {
	if takes != m.negated {
		return m.kind.says
	}
	return m.kind.not
}

// Written is the descriptor's key and value as messages show them: the value of a match is ~
// and its text.
func (d *Descriptor) Written() Entry {
	if d.Match != nil {
		return Entry{d.Key, "~" + d.Match.Text}
	}
	return d.Entry
}

// isMatch reports whether a value is that of a match, as Written has it.
func isMatch(value string) bool {
	text, found := strings.CutPrefix(value, "~")
	name, _, named := strings.Cut(strings.TrimPrefix(text, "not:"), ":")
	is := func(k Kind) bool { return string(k.Name) == strings.TrimSuffix(name, "/i") }
	return found && named && slices.ContainsFunc(Kinds[:], is)
}

// String is the descriptor in paths of rules: key_value as envoyproxy/ratelimit writes it, or
// key~match.
func (d *Descriptor) String() string {
	if d.Match != nil {
		return d.Key + "~" + d.Match.Text
	}
	return d.Entry.String()
}

// AnyValue reports whether the descriptor takes every value of its key.
func (d *Descriptor) AnyValue() bool { return d.Value == "" && d.Match == nil }

// next finds the descriptor below n that takes e, or nil.
func (n *Node) next(e Entry) *Node {
	if e.Value != "" { // leaves a descriptor without a value to the last line
		if found := n.child(e); found != nil {
			return found
		}
	}
	if n.sets != nil {
		if found := n.sets.find(e); found != nil {
			return found
		}
	}
	return n.child(Entry{Key: e.Key})
}

// find finds the rule for entries that are looked up from below n on, or nil.
func (n *Node) find(entries []Entry) *Rule {
	for _, e := range entries {
		if n = n.next(e); n == nil {
			return nil
		}
	}
	return n.Rule
}

// fits is the rank of the way in which n takes a value, whatever the key is; noRank if it
// does not.
func (n *Node) fits(value string) rank {
	switch {
	case n.Match != nil && n.Match.Takes(value):
		return n.Match.rank()
	case n.Match != nil:
	case n.Value == "":
		return byKey
	case n.Value == value:
		return byValue
	case isPattern(n.Value):
		if p := newPattern(n.Value); p.match(value) {
			return inOrder
		}
	}
	return noRank
}

// takes is the rank of the way in which n takes an entry, whether or not another descriptor
// goes first; noRank if it does not.
func (n *Node) takes(e Entry) rank {
	is := n.fits(e.Value)
	if isPattern(n.Key) {
		key := newPattern(n.Key)
		switch {
		case is == noRank || !key.match(e.Key):
			return noRank
		case is == byValue && n.Entry == e:
			return byValue
		}
		return inOrder
	}
	if n.Key != e.Key {
		return noRank
	}
	return is
}

// by is the way in which n takes entries in a way of rank r.
func (n *Node) by(r rank) By {
	switch {
	case r == noRank:
		return Nothing
	case n.Match != nil:
		return n.Match.By()
	}
	return [...]By{byValue: Exact, inOrder: Wildcard, byKey: Key}[r]
}

// unheard is a text that no rule has: a pattern that takes it takes every text.
const unheard = "\x00*\x00"

// HiddenBy returns the descriptor beside n that takes every entry that n could match, so that
// n never gets one: a wildcard, prefix, suffix or contains that comes before n, or one for
// any value if n has a key and no value. It returns nil if n can be reached. A descriptor with
// an exact value or with networks always can.
//
// HiddenBy looks for one such descriptor; it does not find the several descriptors
// that hide n only together.
func (n *Node) HiddenBy() *Node {
	if n.parent == nil || n.parent.sets == nil || n.Value != "" && !n.HasWildcard() {
		return nil
	}
	// A pattern matches all texts of another pattern exactly if it matches that pattern as a
	// text: only a '*' can take the other's '*'. The text of "any value" is "", which only the
	// patterns of any value match.
	text := n.Value
	if m := n.Match; m != nil {
		switch {
		case m.rank() != inOrder:
			return nil
		case m.negated || m.verify != nil:
			text = unheard
		default:
			text = m.literal.hardest()
		}
		if m.fold && n.parent.sets.find(Entry{n.Key, strings.ToUpper(text)}) != n.parent.sets.find(Entry{n.Key, strings.ToLower(text)}) {
			return nil // the first one minds the case
		}
	}
	first := n.parent.sets.find(Entry{n.Key, text})
	switch {
	case first == nil || first == n, n.Match != nil && first.order > n.order:
		return nil
	case first.Match != nil && (first.Match.negated || first.Match.verify != nil): // takes this text by chance
		return nil
	}
	return first
}
