package process

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestLogShape(t *testing.T) {
	const (
		second = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`
		zone   = `(Z|[+-]\d\d:\d\d)`
	)
	tests := []struct {
		format, level string
		want          []string // a line each
	}{
		{"text", "info", []string{
			`time="` + second + zone + `" level=info msg=listening on=127.0.0.1:8080 for=3s`,
			`time="` + second + zone + `" level=warning msg="two words" error="a \\"quote\\"\\nand a line"`,
			`time="` + second + zone + `" level=error msg=bad`,
		}},
		{"json", "info", []string{
			`{"@timestamp":"` + second + `\.\d+` + zone + `","level":"info","@message":"listening","on":"127.0.0.1:8080","for":"3s"}`,
			`{"@timestamp":"` + second + `\.\d+` + zone + `","level":"warning","@message":"two words","error":"a \\"quote\\"\\nand a line"}`,
			`{"@timestamp":"` + second + `\.\d+` + zone + `","level":"error","@message":"bad"}`,
		}},
		{"json", "error", []string{`{"@timestamp":"` + second + `\.\d+` + zone + `","level":"error","@message":"bad"}`}},
		{"text", "fatal", nil},
	}
	for _, tt := range tests {
		var b strings.Builder
		log := newLog(&b, tt.level, tt.format)
		log.Debug("hidden")
		log.Info("listening", "on", "127.0.0.1:8080", "for", 3*time.Second)
		log.Warn("two words", "error", "a \"quote\"\nand a line")
		log.Error("bad")
		want := ""
		for _, line := range tt.want {
			want += line + "\n"
		}
		if !regexp.MustCompile(`^` + want + `$`).MatchString(b.String()) {
			t.Errorf("%s, %s:\n%swant\n%s", tt.format, tt.level, b.String(), want)
		}
	}
}
