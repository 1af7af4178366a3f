package remote_test

import (
	"strings"
	"testing"

	"example.org/rls/pkg/backends/remote"
)

func TestHostPort(t *testing.T) {
	for text, want := range map[string]string{
		"h:1": "h:1", "h": "h:6379", "[::1]:1": "[::1]:1", "[::1]": "[::1]:6379", "::1": "[::1]:6379", "fe80::1%eth0": "[fe80::1%eth0]:6379",
		"": "", "h:": "", "h:tcp": "", "h:0": "", "h:70000": "", ":1": "", "[]": "", "::g": "", "h:1:2": "",
	} {
		if got, err := remote.HostPort(" "+text+"\t\n", "6379"); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	if got, err := remote.HostPort("h", ""); err == nil {
		t.Errorf("without any port: %q", got)
	}
}

func TestParseRedis(t *testing.T) {
	for text, want := range map[string]remote.Redis{
		"h":                         {Addr: "h:6379"},
		"redis://h:1/2":             {Addr: "h:1", DB: 2},
		"rediss://u:p@[::1]":        {Addr: "[::1]:6379", User: "u", Password: "p", TLS: true},
		"redis://h?db=2&password=p": {Addr: "h:6379", Password: "p", DB: 2},
		"redis://:p@ss@h":           {Addr: "h:6379", Password: "p@ss"},
	} {
		if got, err := remote.ParseRedis(" "+text+"\t\n", "6379"); got != want || err != nil {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"a,h:1", "a:1,b:1", "secret@h", "https://u:secret@h", "redis://u:secret@h:port", "redis://", "redis://u:secret@h/first", "redis://h/-1?password=secret"} {
		if got, err := remote.ParseRedis(text, "6379"); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %+v, %v; want an error without the password", text, got, err)
		}
	}
}

func TestIsTCP(t *testing.T) {
	for text, want := range map[string]bool{"h:1": true, "redis://h": true, "/run/redis.sock": false, "redis.sock": false, "dir/h:1": false} {
		if got := remote.IsTCP(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
