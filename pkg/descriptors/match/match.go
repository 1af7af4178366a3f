// Package match says which values a descriptor of the rules takes, and finds the one that goes
// first among those of a key.
//
// It knows neither rules nor trees: to an [Index], a descriptor is its place in their order.
package match

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gaissmai/bart"
)

// Rank is the precedence of a way in which a descriptor takes an entry: at each depth,
// descriptors of the first rank that has one for the entry go before all others.
type Rank int

const (
	ByValue   Rank = iota // one value, or one of several
	ByNetwork             // the longest prefix goes first
	InOrder               // wildcards and other matches: the first in the order of the rules
	ByKey                 // the key, and no value
	NoRank                // it does not take the entry
)

// Kind is a kind of match.
type Kind struct {
	Name string
	List bool   // it has several texts
	What string // for documents
	Note string // for documents; may be ""

	rank Rank
	// says is what a value of the kind does, and not the opposite.
	says, not string
	// compile sets the fields of m that find its values, or returns an error for each wrong text.
	compile func(m *Match, texts []string) []Wrong
}

// Kinds are the kinds of match. A further kind is a file and a row; docs, JSON Schema and
// messages follow from the row.
var Kinds = [...]Kind{
	{Name: "values", List: true, What: "several values; `*` stands for itself",
		says: "the entry's value is in its list", not: "the entry's value is not in its list",
		rank: ByValue, compile: compileValues},
	{Name: "prefix", What: "the text that values begin with",
		says: "the entry's value begins with its text", not: "the entry's value does not begin with its text",
		rank: InOrder, compile: compileAffix(atStart)},
	{Name: "suffix", What: "the text that values end with",
		says: "the entry's value ends with its text", not: "the entry's value does not end with its text",
		rank: InOrder, compile: compileAffix(atEnd)},
	{Name: "contains", What: "a text that values have in any place",
		says: "the entry's value has its text", not: "the entry's value does not have its text",
		rank: InOrder, compile: compileAffix(anywhere)},
	{Name: "regex", What: "a [regular expression](match.md#regular-expressions) that fits the whole value", Note: "RE2, at most 1,000 bytes, and 2,000 instructions of its program",
		says: "the entry's value fits its expression", not: "the entry's value does not fit its expression",
		rank: InOrder, compile: compileRegex},
	{Name: "cidr", List: true, What: "[networks](match.md#networks), such as `10.0.0.0/8`", Note: "an IPv4-mapped address counts as IPv4; an address with a port or a zone is in no network",
		says: "the entry's value is an address of its networks", not: "the entry's value is no address of its networks",
		rank: ByNetwork, compile: compileNetworks},
}

// Wrong is an error in one of the texts of a match, the text with the index Item. Err says what
// would be right.
type Wrong struct {
	Item int
	Err  error
}

// Match says which values a descriptor takes: the field match of the rules.
type Match struct {
	// Name is that of the kind, with not: before it if the match takes all other values, and /i
	// behind it if the case of letters makes no difference.
	Name string
	// First is the first text, and More the number of the others.
	First string
	More  int
	// Sum is the same for matches of the same values that are written alike, in any order.
	Sum [sha256.Size]byte
	// Values are the single values of a match of the rank ByValue, folded with Fold.
	Values []string
	Fold   bool // the case of letters makes no difference
	Cost   int  // of an expression, the number of instructions of its program

	kind     *Kind
	negated  bool
	literal  literal
	verify   func(value string, w *Work) bool // nil: the literal decides
	networks *bart.Table[int32]               // of cidr, each with the index of its text
}

// New returns a match of the values that a kind finds with the texts, or, if negated is true, of
// all other values. If texts are wrong, it returns an error for each of them and no match.
func New(kind *Kind, texts []string, negated, ignoreCase bool) (m *Match, wrong []Wrong) {
	if len(texts) == 0 {
		return nil, []Wrong{{0, errors.New("must have at least one text")}}
	}
	for i, text := range texts {
		if text == "" {
			wrong = append(wrong, Wrong{i, errors.New("must not be empty")})
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	m = &Match{Name: kind.Name, First: texts[0], More: len(texts) - 1, Fold: ignoreCase, kind: kind, negated: negated}
	if wrong = kind.compile(m, texts); wrong != nil {
		return nil, wrong
	}
	if negated {
		m.Name = "not:" + m.Name
	}
	if ignoreCase {
		m.Name += "/i"
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s", m.Name)
	for _, text := range slices.Sorted(slices.Values(texts)) {
		fmt.Fprintf(h, "\x00%s", text)
	}
	h.Sum(m.Sum[:0])
	return m, nil
}

// Text names the match in paths of rules: not:KIND:TEXT, or KIND/i:TEXT if it ignores case. Of
// several texts it has the first, and the number of the others: cidr:10.0.0.0/8+1.
func (m *Match) Text() string {
	if m.More > 0 {
		return fmt.Sprintf("%s:%s+%d", m.Name, m.First, m.More)
	}
	return m.Name + ":" + m.First
}

// IsText reports whether Text returns texts such as this one.
func IsText(text string) bool {
	name, _, named := strings.Cut(strings.TrimPrefix(text, "not:"), ":")
	is := func(k Kind) bool { return k.Name == strings.TrimSuffix(name, "/i") }
	return named && slices.ContainsFunc(Kinds[:], is)
}

// Several reports whether matches of the kind can have several texts.
func (m *Match) Several() bool { return m.kind.List }

// Rank is the rank of a descriptor with the match, in whose key there is no wildcard.
func (m *Match) Rank() Rank {
	if m.negated {
		return InOrder
	}
	return m.kind.rank
}

// By is the way in which the match matches: the name of the kind, or not.
func (m *Match) By() string {
	if m.negated {
		return "not"
	}
	return m.kind.Name
}

// Takes reports whether the match has the value.
func (m *Match) Takes(value string) bool { return m.TakesWithin(nil, value) }

// TakesWithin is Takes; once w has ended the answer means nothing.
func (m *Match) TakesWithin(w *Work, value string) bool {
	if !m.Fold {
		return m.takes(value, nil, w)
	}
	var room [foldRoom]byte
	return m.takes(value, appendFolded(room[:0], value), w)
}

// takes is Takes; folded is the value as appendFolded has it if the match ignores case.
func (m *Match) takes(value string, folded []byte, w *Work) bool {
	is := m.Fold && standsIn(m.literal, folded) || !m.Fold && standsIn(m.literal, value)
	return (is && (m.verify == nil || m.verify(value, w))) != m.negated
}

// Says is why the match takes a value, or why not.
func (m *Match) Says(takes bool) string {
	if takes != m.negated {
		return m.kind.says
	}
	return m.kind.not
}

// Exact reports whether the match has single values.
func (m *Match) Exact() bool { return m.Rank() == ByValue }

// foldRoom is the number of bytes up to which a value is folded without allocating.
const foldRoom = 512

// appendFolded appends s with one letter in place of all letters that differ only in case, by
// Unicode's simple folding; of the letters of ASCII it is the lower-case one.
func appendFolded(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError { // also an invalid byte, which stays as it is
			dst = append(dst, s[i:i+size]...)
			i += size
			continue
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		dst = utf8.AppendRune(dst, least)
		i += size
	}
	return dst
}

// foldText is s with one letter in place of all letters that differ only in case.
func foldText(s string) string { return string(appendFolded(nil, s)) }
