package tables

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"time"

	"example.org/rls/internal/reread"
)

// Options are the settings of a [Fetcher].
type Options struct {
	MaxBytes int           `env:"MAX_BYTES" default:"268435456" min:"1024" max:"4294967296" unit:"bytes" help:"Largest table that is fetched."`
	Timeout  time.Duration `env:"TIMEOUT" default:"30s" min:"100ms" max:"10m" help:"Longest fetch. Rules with a new address take effect after its first."`

	TokenFile string `env:"TOKEN_FILE" help:"File with a bearer token for the servers, sent only over TLS, never to another host. Changes of it and the next three files count."`
}

// Open returns a Fetcher that fetches nothing yet. config returns the configuration of a new connection. Its
// errors are about the file with the token.
func Open(o Options, config func() *tls.Config, watch *reread.Watcher, log *slog.Logger) (t *Fetcher, err error) {
	t = &Fetcher{TLS: config, MaxBytes: int64(o.MaxBytes), Timeout: o.Timeout, Log: log}
	if o.TokenFile == "" {
		return t, nil
	}
	t.Token, err = reread.File(watch, "TABLE_TOKEN_FILE", o.TokenFile, func(content string) (string, error) {
		token := strings.TrimRight(content, "\r\n")
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", errors.New("has no token: want one line with a token, such as eyJhbGciOi")
		}
		return token, nil
	})
	return t, err
}
