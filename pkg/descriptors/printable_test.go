package descriptors_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"example.org/rls/pkg/descriptors"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "",
		"ann":                "ann",
		`ann\xff`:            `ann\xff`, // is shown as it is: it is another text
		"ann\xff":            `ann\xff`,
		"\xff\\x":            `\xff\\x`,
		"caf\xe9":            `caf\xe9`,
		"\x80":               `\x80`,
		"a\xed\xa0\x80b":     `a\xed\xa0\x80b`, // a surrogate
		"\uFFFD":             "\uFFFD",
		"\uFFFD\xff":         "\uFFFD" + `\xff`,
		"ü\xc3":              `ü\xc3`,
		"\x00\n\xf0\x9f\x98": "\x00\n" + `\xf0\x9f\x98`,
	} {
		if got := descriptors.Printable(text); got != want || !utf8.ValidString(got) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	text := strings.Repeat("ü", 1000)
	if n := testing.AllocsPerRun(100, func() { text = descriptors.Printable(text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestEntriesInJSON(t *testing.T) {
	for _, tt := range []struct {
		entry descriptors.Entry
		want  string
	}{
		{descriptors.Entry{Key: "user", Value: "ann"}, `{"key":"user","value":"ann"}`},
		{descriptors.Entry{Key: "user"}, `{"key":"user","value":""}`},
		{descriptors.Entry{Key: "user", Value: `ann\xff`}, `{"key":"user","value":"ann\\xff"}`},
		{descriptors.Entry{Key: "user", Value: "\uFFFD"}, `{"key":"user","value":"` + "\uFFFD" + `"}`},
		{descriptors.Entry{Key: "user", Value: "ann\xff"}, `{"key":"user","value":"ann\\xff","raw":"YW5u/w=="}`},
		{descriptors.Entry{Key: "\xff\\", Value: "ann"}, `{"key":"\\xff\\\\","value":"ann","raw":"YW5u","raw_key":"/1w="}`},
		{descriptors.Entry{Key: "\xff"}, `{"key":"\\xff","value":"","raw_key":"/w=="}`},
	} {
		got, err := json.Marshal(tt.entry)
		if err != nil || string(got) != tt.want {
			t.Errorf("%q: got %s, %v, want %s", tt.entry, got, err, tt.want)
		}
		var read descriptors.Entry
		if err := json.Unmarshal(got, &read); err != nil || read != tt.entry {
			t.Errorf("%s is read as %q, %v", got, read, err)
		}
	}
	var read descriptors.Entry
	if err := json.Unmarshal([]byte(`{"key": "user", "value": "bob", "raw": "ann"}`), &read); err == nil || !strings.Contains(err.Error(), "raw or raw_key in base64") {
		t.Errorf("got %q, %v", read, err)
	}
}

// Entries of texts that are UTF-8 are written as a struct with two fields is, by every encoder.
func FuzzEntriesInJSON(f *testing.F) {
	for _, text := range []string{"ann", "", "\"\\<>&", "ü\u2028\x00\x7f", "\xff\\", "\ufffd", "\xed\xa0\x80"} {
		f.Add("user", text)
		f.Add(text, "ann")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		type plain struct {
			Key   string `json:"key"`
			Value string `json:"value"`
		}
		for _, escape := range []bool{false, true} {
			encode := func(document any) string {
				var b bytes.Buffer
				to := json.NewEncoder(&b)
				to.SetEscapeHTML(escape)
				if err := to.Encode(document); err != nil {
					t.Fatal(err)
				}
				return b.String()
			}
			got := encode([]descriptors.Entry{{Key: key, Value: value}})
			if want := encode([]plain{{key, value}}); got != want && utf8.ValidString(key) && utf8.ValidString(value) {
				t.Errorf("got %s, want %s", got, want)
			}
			var read []descriptors.Entry
			if err := json.Unmarshal([]byte(got), &read); err != nil || read[0].Key != key || read[0].Value != value {
				t.Errorf("%s is read as %q, %v", got, read, err)
			}
		}
	})
}

func TestContainsWhatIsShown(t *testing.T) {
	e := descriptors.Entry{Key: "k\xfe", Value: "ann\xff"}
	for _, part := range []string{"ann", "nn\xff", `ann\xff`, `k\xfe`, "\xfe"} {
		if !e.Contains(part) {
			t.Errorf("%q does not contain %q", e, part)
		}
	}
	if e.Contains(`\xfd`) || (descriptors.Entry{Value: "ann\uFFFD"}).Contains(`\xff`) {
		t.Error("contains another text")
	}
}
