package descriptors

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kind is what a scalar means in YAML 1.1, the dialect that rules have always
// been read in: yes and off are booleans, 1_000 is an integer, 010 is eight
// and 08 is a float.
type kind uint8

const (
	kindString kind = iota
	kindNull
	kindBool
	kindInt
	kindUint // above the largest int64
	kindFloat
	kindInvalid // contradicts its tag
)

var kindNames = [...]string{"a string", "null", "a boolean", "an integer", "an integer out of range", "a number with a fraction or exponent", "invalid"}

func (k kind) String() string { return kindNames[k] }

// scalar is the meaning of a scalar node.
type scalar struct {
	kind  kind
	text  string // as written, or decoded for !!binary
	bool  bool
	int   int64
	uint  uint64
	float float64
}

const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func readScalar(n *yaml.Node) scalar {
	if n.Style&yaml.TaggedStyle == 0 {
		if n.Style&quoted != 0 {
			return scalar{text: n.Value}
		}
		return resolve(n.Value)
	}
	var want kind
	switch n.Tag {
	case "!!binary":
		data, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return scalar{kind: kindInvalid, text: n.Value}
		}
		return scalar{text: string(data)}
	case "!!null":
		want = kindNull
	case "!!bool":
		want = kindBool
	case "!!int":
		want = kindInt
	case "!!float":
		want = kindFloat
	default:
		return scalar{text: n.Value}
	}
	s := resolve(n.Value)
	switch {
	case want == kindFloat && s.kind == kindInt:
		s.kind, s.float = kindFloat, float64(s.int)
	case want == kindInt && s.kind == kindUint:
	case want != s.kind:
		s.kind = kindInvalid
	}
	return s
}

// resolve finds the meaning of a plain scalar.
func resolve(text string) scalar {
	s := scalar{text: text}
	if text == "" {
		s.kind = kindNull
		return s
	}
	switch c := text[0]; {
	case c == '~' || strings.IndexByte("yYnNtTfFoO", c) >= 0:
		s.word()
	case c == '.':
		if !s.special() {
			if f, err := strconv.ParseFloat(text, 64); err == nil {
				s.kind, s.float = kindFloat, f
			}
		}
	case c >= '0' && c <= '9' || c == '+' || c == '-':
		if !s.special() {
			s.number()
		}
	}
	return s
}

// word recognises null and the booleans.
func (s *scalar) word() {
	switch s.text {
	case "~", "null", "Null", "NULL":
		s.kind = kindNull
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		s.kind, s.bool = kindBool, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		s.kind = kindBool
	}
}

// special recognises the floats that are not numbers.
func (s *scalar) special() bool {
	switch s.text {
	case ".nan", ".NaN", ".NAN":
		s.float = math.NaN()
	case ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF":
		s.float = math.Inf(1)
	case "-.inf", "-.Inf", "-.INF":
		s.float = math.Inf(-1)
	default:
		return false
	}
	s.kind = kindFloat
	return true
}

// number recognises integers of any base, with underscores anywhere, and
// decimal floats. Dates stay strings.
func (s *scalar) number() {
	plain := s.text
	if digits(plain) < len(plain) {
		if strings.Trim(plain, "+-0123456789abcdefxoABCDEFXO_.") != "" {
			return // a date with a time, an address with a port, an identifier
		}
		plain = strings.ReplaceAll(plain, "_", "")
	}
	if i, err := strconv.ParseInt(plain, 0, 64); err == nil {
		s.kind, s.int = kindInt, i
		return
	}
	if u, err := strconv.ParseUint(plain, 0, 64); err == nil {
		s.kind, s.uint = kindUint, u
		return
	}
	if decimal(plain) {
		if f, err := strconv.ParseFloat(plain, 64); err == nil {
			s.kind, s.float = kindFloat, f
		}
	}
}

// decimal reports whether s is [sign] digits [. digits] [e [sign] digits], with
// digits on at least one side of the point.
func decimal(s string) bool {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	whole := digits(s)
	rest := s[whole:]
	if strings.HasPrefix(rest, ".") {
		frac := digits(rest[1:])
		if whole == 0 && frac == 0 {
			return false
		}
		rest = rest[1+frac:]
	} else if whole == 0 {
		return false
	}
	if rest == "" {
		return true
	}
	if rest[0] != 'e' && rest[0] != 'E' {
		return false
	}
	rest = rest[1:]
	if rest != "" && (rest[0] == '+' || rest[0] == '-') {
		rest = rest[1:]
	}
	return rest != "" && digits(rest) == len(rest)
}

// digits counts the decimal digits that s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
