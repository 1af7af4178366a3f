package descriptors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Printable is a text as people are shown it, which is UTF-8. A text that is UTF-8 stays as it
// is, without an allocation. In another text each invalid byte becomes \xff, with two lower-case
// hexadecimal digits, and each backslash is doubled.
func Printable(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch _, size := utf8.DecodeRuneInString(text[i:]); {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Shown is an Entry in documents. Key and Value are [Printable]. If one of them is not UTF-8, Raw
// has the bytes of the value, and RawKey those of the key if that is not UTF-8.
type Shown struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Raw    []byte `json:"raw,omitempty"`
	RawKey []byte `json:"raw_key,omitempty"`
}

// MarshalJSON implements [json.Marshaler] by [Shown], with bytes in base64.
func (e Entry) MarshalJSON() ([]byte, error) {
	if verbatim(e.Key) && verbatim(e.Value) {
		b := append(make([]byte, 0, len(`{"key":"","value":""}`)+len(e.Key)+len(e.Value)), `{"key":"`...)
		b = append(append(append(b, e.Key...), `","value":"`...), e.Value...)
		return append(b, `"}`...), nil
	}
	s := Shown{Key: Printable(e.Key), Value: Printable(e.Value)}
	if s.Key != e.Key {
		s.RawKey = []byte(e.Key)
	}
	if s.RawKey != nil || s.Value != e.Value {
		s.Raw = []byte(e.Value)
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false) // the encoder of the document does, if it is to
	err := to.Encode(s)
	return b.Bytes(), err
}

// verbatim reports whether JSON surely has text as it is.
func verbatim(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) < 0
}

// UnmarshalJSON implements [json.Unmarshaler]: Raw and RawKey win over Value and Key unless they are empty. It
// refuses other fields.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var s Shown
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&s); err != nil {
		return fmt.Errorf(`%w; want {"key": "KEY", "value": "VALUE"}, and raw or raw_key in base64`, err)
	}
	if *e = (Entry{s.Key, s.Value}); len(s.Raw) > 0 {
		e.Value = string(s.Raw)
	}
	if len(s.RawKey) > 0 {
		e.Key = string(s.RawKey)
	}
	return nil
}
