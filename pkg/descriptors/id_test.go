package descriptors_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

func value(text string) descriptors.Naming { return pattern("", text) }

func pattern(key, value string) descriptors.Naming {
	return descriptors.Naming{Pattern: descriptors.Entry{Key: key, Value: value}}
}

func TestAppendID(t *testing.T) {
	for _, tt := range []struct {
		entries string
		shared  []descriptors.Naming
		want    string
	}{
		{"user=v0-123456", nil, "d|user=v0-123456"},
		{"", nil, "d"},
		{"user", nil, "d|user"},
		{"path=/a/b?c:d_e,ip=10.0.0.1", nil, "d|path=/a/b?c:d_e|ip=10.0.0.1"},
		{"a=b c\r\n\x00\x7f%|{}*\xff", nil, "d|a=b%20c%0D%0A%00%7F%25%7C%7B%7D%2A%FF"},
		{"a==", nil, "d|a=%3D"},
		{"a=é", nil, "d|a=%C3%A9"},
		{"a=x1,b=x1", []descriptors.Naming{value("x*"), {}}, "d|a=x*|b=x1"},
		{"b1=x,b2=y", []descriptors.Naming{pattern("b*", ""), pattern("b*", "y")}, "d|b1=b*%3D|b2=b*%3Dy"},
		{"a=x1,b=x1", []descriptors.Naming{{}, value("* *")}, "d|a=x1|b=*%20*"},
	} {
		got := string(descriptors.AppendID([]byte("p:"), "d", entries(tt.entries), tt.shared))
		if got != "p:"+tt.want {
			t.Errorf("%q gives %q, want %q", tt.entries, got, "p:"+tt.want)
		}
	}
}

// Of a long key or value a name has the beginning and a hash.
func TestNamesOfLongTexts(t *testing.T) {
	long := strings.Repeat("x", 1025)
	id := descriptors.AppendID(nil, "d", []descriptors.Entry{{Key: long, Value: long + "y"}}, nil)
	want := []descriptors.Entry{{Key: backends.ShortKey(long, 1024), Value: backends.ShortKey(long+"y", 1024)}}
	if _, got, ok := descriptors.ParseID(string(id)); !ok || !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAppendRatelimitID(t *testing.T) {
	for _, tt := range []struct {
		entries string
		shared  []descriptors.Naming
		want    string
	}{
		{"user=a b", nil, "d_user_a b_"},
		{"user", nil, "d_user__"},
		{"a=x1,b=x1", []descriptors.Naming{value("x*"), {}}, "d_a_x*_b_x1_"},
		{"b1=x,b2=y", []descriptors.Naming{pattern("b*", ""), pattern("b*", "y")}, "d_b1_b*_b2_b*_y_"},
	} {
		got := string(descriptors.AppendRatelimitID([]byte("p:"), "d", entries(tt.entries), tt.shared))
		if got != "p:"+tt.want {
			t.Errorf("%q gives %q, want %q", tt.entries, got, "p:"+tt.want)
		}
	}
}

// FuzzAppendID reads a name back to the entries that it was made of, so that
// different entries never have the same name.
func FuzzAppendID(f *testing.F) {
	f.Add("d", "user", "v0-12", "path", "/x", "", "*")
	f.Add("d|", "a=b", "%7C", "", "", "x*", "")
	f.Add("", "", "", "*", "*", "a b*", "*%*")
	f.Add("d", "user", "a_role_admin", "a_b", "c", "", "")
	f.Add("d", "a b", "c\r\n\x00\x7f%|{}*\xff", "a", "==", "", "")
	f.Fuzz(func(t *testing.T, domain, k1, v1, k2, v2, s1, s2 string) {
		want := []descriptors.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}}
		shared := []descriptors.Naming{value(s1), value(s2)}
		for i := range shared {
			if !strings.Contains(shared[i].Pattern.Value, "*") { // values share a counter only where there is a wildcard
				shared[i].Pattern.Value = ""
			}
		}
		id := descriptors.AppendID(nil, domain, want, shared)
		text := string(id)
		for _, c := range id {
			if c <= ' ' || c >= 0x7f || c == '{' || c == '}' {
				t.Fatalf("%q has the byte %#x", id, c)
			}
		}
		parts := strings.Split(text, "|")[1:]
		for i, s := range shared {
			want[i].Key, want[i].Value = backends.ShortKey(want[i].Key, 1024), backends.ShortKey(want[i].Value, 1024)
			if s.Shared() {
				want[i].Value = s.Pattern.Value
			}
			if i < len(parts) && strings.Contains(parts[i], "*") != s.Shared() {
				t.Fatalf("%q: a pattern and a value with * look alike", id)
			}
		}
		if got, entries, ok := descriptors.ParseID(text); !ok || got != domain || !cmp.Equal(entries, want) {
			t.Fatalf("%q is read as %q, %q, %v; want %q, %q", id, got, entries, ok, domain, want)
		}
	})
}

func TestParseIDRefusesOtherNames(t *testing.T) {
	for _, bad := range []string{"d%", "d|a=%zz", "d|%2"} {
		if _, _, ok := descriptors.ParseID(bad); ok {
			t.Errorf("%q is taken for an ID", bad)
		}
	}
	if _, entries, ok := descriptors.ParseID("d"); !ok || entries != nil {
		t.Errorf("a domain alone has the entries %v, %v", entries, ok)
	}
}
