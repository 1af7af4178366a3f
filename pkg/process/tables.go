package process

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources/tables"
)

// openTables opens the token for servers of tables.
func openTables(s *settings.Tables, use *tlsUse, watch *reread.Watcher, log *slog.Logger) (t *tables.Fetcher, err error) {
	t = &tables.Fetcher{MaxBytes: int64(s.MaxBytes), Timeout: s.Timeout, Log: log}
	if t.TLS, err = use.client("", false); err != nil || s.TokenFile == "" {
		return t, err
	}
	t.Token, err = openSecret(watch, "TABLE_TOKEN_FILE", s.TokenFile, func(content string) (string, error) {
		token := strings.TrimRight(content, "\r\n")
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", fmt.Errorf("has no token: want one line with a token, such as eyJhbGciOi")
		}
		return token, nil
	})
	return t, err
}

// OfflineOptions returns the options with which commands load rules. They fetch tables only if a flag
// says so, and otherwise note on the standard error which ones are not known.
func OfflineOptions(s *settings.RuleSettings) (language.Options, error) {
	o := ruleOptions(*s)
	if s.FetchTables {
		silent := slog.New(slog.DiscardHandler)
		watch, use := reread.NewWatcher(silent), tlsOf(&settings.Settings{Tables: s.Tables}).tables
		_ = use.open(watch) // client returns the error
		tables, err := openTables(&s.Tables, &use, watch, silent)
		if err != nil {
			return o, err
		}
		o.Fetched = tables.Once
		return o, nil
	}
	noted := map[string]bool{}
	o.Fetched = func(url string, _ time.Duration) (*language.Table, error) {
		if !noted[url] {
			noted[url] = true
			_, _ = fmt.Fprintf(os.Stderr, "note: the rows of %s are not known here, so its values have the limit of the rule; --fetch-tables fetches them\n", url)
		}
		return nil, nil
	}
	return o, nil
}
