package settings_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/settings"
)

var update = flag.Bool("update", false, "write docs/settings.md and the Helm chart's list of settings")

// TestDocs compares docs/settings.md, and the list of the names of settings
// by which the Helm chart refuses unknown ones, with the settings.
func TestDocs(t *testing.T) {
	for path, want := range map[string]string{
		"../../docs/settings.md":                   reference(t),
		"../../deploy/helm/rls/files/settings.txt": names(t),
	} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s differs from the settings; run go test ./pkg/settings -update\n%s", path, diff)
		}
	}
}

// names is the variable of each setting, one a line.
func names(t *testing.T) string {
	var b strings.Builder
	for _, flag := range flags(t) {
		fmt.Fprintln(&b, flag.Envs[0])
	}
	return b.String()
}

func reference(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# Settings

<!-- Written by go test ./pkg/settings -update: change pkg/settings instead. -->

Each setting is an environment variable and a flag of ` + "`rls serve`" + `: REDIS_URL is --redis-url. A flag overrides its
variable. A setting that envoyproxy/ratelimit has, too, has the same name and meaning, and with
few exceptions the same default ([migrate.md](migrate.md#every-setting)).

- Durations are written as 150ms, 10s or 1h30m, booleans as true or false (or 1, 0, t, f), choices in any case, lists with commas.
- A wrong value ends the process at its start. The message names every wrong value and what would be right.
- An empty choice is its default.
- A value that Kubernetes sets for a Service named grpc (GRPC_PORT=tcp://10.0.0.1:8081) is ignored.
- GOGC and GOMEMLIMIT have their usual meaning for Go programs. Without GOGC it follows the size of the heap, up to 400.
`)
	group := ""
	for _, flag := range flags(t) {
		if flag.Group.Title != group {
			group = flag.Group.Title
			fmt.Fprintf(&b, "\n## %s\n\n| variable | default | values | meaning |\n|---|---|---|---|\n", group)
		}
		def := ""
		if flag.Default != "" {
			def = "`" + flag.Default + "`"
		}
		if flag.Envs[0] == "BACKEND_TYPE" {
			def += "; `redis` when the program is started by the name `ratelimit`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", flag.Envs[0], def, settings.Values(flag.Value), flag.Help)
	}
	return b.String()
}
