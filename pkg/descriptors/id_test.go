package descriptors_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
)

func TestAppendID(t *testing.T) {
	for _, tt := range []struct {
		entries string
		shared  []descriptors.Entry
		want    string
	}{
		{"user=v0-123456", nil, "d|user=v0-123456"},
		{"", nil, "d"},
		{"user", nil, "d|user"},
		{"path=/a/b?c:d_e,ip=10.0.0.1", nil, "d|path=/a/b?c:d_e|ip=10.0.0.1"},
		{"a=b c\r\n\x00\x7f%|{}*\xff", nil, "d|a=b%20c%0D%0A%00%7F%25%7C%7B%7D%2A%FF"},
		{"a==", nil, "d|a=%3D"},
		{"a=é", nil, "d|a=%C3%A9"},
		{"a=x1,b=x1", []descriptors.Entry{{Value: "x*"}, {}}, "d|a=x*|b=x1"},
		{"b1=x,b2=y", []descriptors.Entry{{Key: "b*"}, {Key: "b*", Value: "y"}}, "d|b1=b*%3D|b2=b*%3Dy"},
		{"a=x1,b=x1", []descriptors.Entry{{}, {Value: "* *"}}, "d|a=x1|b=*%20*"},
	} {
		got := string(descriptors.AppendID([]byte("p:"), "d", entries(tt.entries), tt.shared))
		if got != "p:"+tt.want {
			t.Errorf("%q gives %q, want %q", tt.entries, got, "p:"+tt.want)
		}
	}
}

func TestAppendRatelimitID(t *testing.T) {
	for _, tt := range []struct {
		entries string
		shared  []descriptors.Entry
		want    string
	}{
		{"user=a b", nil, "d_user_a b_"},
		{"user", nil, "d_user__"},
		{"a=x1,b=x1", []descriptors.Entry{{Value: "x*"}, {}}, "d_a_x*_b_x1_"},
		{"b1=x,b2=y", []descriptors.Entry{{Key: "b*"}, {Key: "b*", Value: "y"}}, "d_b1_b*_b2_b*_y_"},
	} {
		got := string(descriptors.AppendRatelimitID([]byte("p:"), "d", entries(tt.entries), tt.shared))
		if got != "p:"+tt.want {
			t.Errorf("%q gives %q, want %q", tt.entries, got, "p:"+tt.want)
		}
	}
}

func TestIdentitiesThatWereOneAreTwo(t *testing.T) {
	for _, pair := range [][2]string{
		{"user=a_role_admin", "user=a,role=admin"},
		{"a_b=c", "a=b_c"},
		{"a=|b", "a,b"},
		{"a=b|c=d", "a=b,c=d"},
	} {
		one := descriptors.AppendID(nil, "d", entries(pair[0]), nil)
		other := descriptors.AppendID(nil, "d", entries(pair[1]), nil)
		if string(one) == string(other) {
			t.Errorf("%q and %q are both %q", pair[0], pair[1], one)
		}
	}
}

// FuzzAppendID reads a name back to the entries that it was made of, so that
// different entries never have the same name.
func FuzzAppendID(f *testing.F) {
	f.Add("d", "user", "v0-12", "path", "/x", "", "*")
	f.Add("d|", "a=b", "%7C", "", "", "x*", "")
	f.Add("", "", "", "*", "*", "a b*", "*%*")
	f.Fuzz(func(t *testing.T, domain, k1, v1, k2, v2, s1, s2 string) {
		want := []descriptors.Entry{{Key: k1, Value: v1}, {Key: k2, Value: v2}}
		shared := []descriptors.Entry{{Value: s1}, {Value: s2}}
		for i := range shared {
			if !strings.Contains(shared[i].Value, "*") { // values share a counter only where there is a wildcard
				shared[i].Value = ""
			}
		}
		id := descriptors.AppendID(nil, domain, want, shared)
		for i, s := range shared {
			if s.Value != "" {
				want[i].Value = "shared " + s.Value
			}
		}
		for _, c := range id {
			if c <= ' ' || c >= 0x7f || c == '{' || c == '}' {
				t.Fatalf("%q has the byte %#x", id, c)
			}
		}
		parts := strings.Split(string(id), "|")
		if got := unescape(t, parts[0]); got != domain {
			t.Fatalf("%q has the domain %q, want %q", id, got, domain)
		}
		var got []descriptors.Entry
		for _, part := range parts[1:] {
			k, v, _ := strings.Cut(part, "=")
			e := descriptors.Entry{Key: unescape(t, k), Value: unescape(t, v)}
			if strings.Contains(v, "*") {
				e.Value = "shared " + e.Value
			}
			got = append(got, e)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q: -want +got\n%s", id, diff)
		}
	})
}

func unescape(t *testing.T, s string) string {
	t.Helper()
	plain, err := url.PathUnescape(s)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestParseID: an ID tells the domain and entries that it was made of.
func TestParseID(t *testing.T) {
	for _, domain := range []string{"d", "a|b=c%{}* \x00é"} {
		for _, text := range []string{"", "user", "user=v", "a=b c\r\n\x00\x7f%|{}*\xff,b", "a==,=x"} {
			want := entries(text)
			got, parsed, ok := descriptors.ParseID(string(descriptors.AppendID(nil, domain, want, nil)))
			if !ok || got != domain || !cmp.Equal(parsed, want) {
				t.Errorf("%q, %q: %q, %v, %v", domain, text, got, parsed, ok)
			}
		}
	}
	for _, bad := range []string{"d%", "d|a=%zz", "d|%2"} {
		if _, _, ok := descriptors.ParseID(bad); ok {
			t.Errorf("%q is taken for an ID", bad)
		}
	}
}
