package commands

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/reread"
	"example.org/rls/pkg/descriptors"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/tables"
)

// ruleFlags are the settings of serve that say how rules load, as flags of a command that reads
// rules.
type ruleFlags struct {
	Settings settings.RuleSettings `embed:"" group:"Settings of serve"`
}

// ruleOptions checks the settings, and returns how rules load under them. Its errors are usage
// errors.
func (f *ruleFlags) ruleOptions(decoder *settings.Decoder) (options language.Options, err error) {
	if err = decoder.CheckPart(&f.Settings); err == nil {
		options = f.Settings.Options()
		options.Fetched, err = f.fetched()
	}
	if err != nil {
		err = cli.UsageError("%w", err)
	}
	return options, err
}

// fetched returns the function that fetches tables if a flag says so, and otherwise notes on the standard
// error which ones are not known.
func (f *ruleFlags) fetched() (func(url string, every time.Duration) (*language.Table, error), error) {
	if t := &f.Settings.Tables; f.Settings.FetchTables {
		silent := slog.New(slog.DiscardHandler) // errors are returned
		watch := reread.NewWatcher(silent)
		certs, err := reread.OpenCerts(watch, "TABLE_TLS_*", reread.CertFiles{Cert: t.TLSClientCert, Key: t.TLSClientKey, CA: t.TLSCACert})
		if err != nil {
			return nil, fmt.Errorf("TABLE_TLS_*: %w", err)
		}
		fetcher, err := tables.Open(t.Options, certs.Client, watch, silent)
		return fetcher.Once, err
	}
	noted := map[string]bool{}
	return func(url string, _ time.Duration) (*language.Table, error) {
		if !noted[url] {
			noted[url] = true
			_, _ = fmt.Fprintf(os.Stderr, "note: the rows of %s are not known here, so its values have the limit of the rule; --fetch-tables fetches them\n", url)
		}
		return nil, nil
	}, nil
}

// load loads the rules of a path, and the overlays that the settings name. That they cannot be read is a
// usage error.
func (f *ruleFlags) load(path string, options language.Options) (*descriptors.Tree, error) {
	texts, err := f.readAll(path)
	if err != nil {
		return nil, cli.UsageError("read rules: %w", err)
	}
	if wrong := noRules(path); wrong != nil && len(texts) == 0 {
		return nil, cli.UsageError("%w", wrong)
	}
	tree, _, err := yaml.Load(texts, options)
	return tree, err
}

// read reads the rules that the command is given as a path, or the overlays that the settings
// name: a file, or all files of a folder except tests of rules. Unlike [sources.Folder] it takes a
// path that does not exist for a mistake. It calls the functions of told.
func (f *ruleFlags) read(path string, told sources.Folder) ([]yaml.Text, error) {
	overlay := path == f.Settings.OverlayFile
	if _, err := os.Stat(path); err != nil {
		if overlay {
			err = fmt.Errorf("OVERLAY_FILE: %w", err)
		}
		return nil, err
	}
	told.Path, told.IgnoreDotFiles = path, f.Settings.RuntimeIgnoredotfiles
	texts, err := told.Read()
	for i := range texts {
		texts[i].Overlay = overlay
	}
	return texts, err
}

// readAll reads the rules of a path, and if it has any the overlays that the settings name.
func (f *ruleFlags) readAll(path string) ([]yaml.Text, error) {
	texts, err := f.read(path, sources.Folder{})
	if err != nil || len(texts) == 0 || f.Settings.OverlayFile == "" {
		return texts, err
	}
	overlays, err := f.read(f.Settings.OverlayFile, sources.Folder{})
	return append(texts, overlays...), err
}

// noRules is the error of a path that names tests of rules or a table where rules are wanted;
// nil for other paths.
func noRules(path string) error {
	switch {
	case strings.HasSuffix(path, language.TableFile):
		return fmt.Errorf("%s is a table, as the end of its name says, and no rules; rls table lint checks it", path)
	case !strings.HasSuffix(path, sources.TestFile):
		return nil
	}
	return fmt.Errorf("%s has tests of rules, as the end of its name says, and no rules; rls test runs them", path)
}
