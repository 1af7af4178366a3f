package settings_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/settings"
)

// TestDocs compares docs/settings.md, and the list of the names of settings
// by which the Helm chart refuses unknown ones, with the settings.
func TestDocs(t *testing.T) {
	testenv.Golden(t, "../../docs/settings.md", reference(t), "pkg/settings")
	testenv.Golden(t, "../../deploy/helm/rls/files/settings.txt", names(t), "pkg/settings")
}

// names is the variable of each setting, one a line.
func names(t *testing.T) string {
	var b strings.Builder
	for _, flag := range flags(t) {
		fmt.Fprintln(&b, flag.Envs[0])
	}
	return b.String()
}

// reads has for each section of the settings the tasks that they are for, and where those are explained.
var reads = map[string]string{
	"HTTP, debug and health":              "Ports, health, and the end of a process: [Kubernetes](kubernetes.md), [security](security.md).",
	"gRPC":                                "TLS, and the bounds of a connection: [security](security.md).",
	"Admin API":                           "Tokens, fleet and TLS: [ask a running service](admin.md).",
	"Rules":                               "[Rules](rules.md), [overlays](overlays.md); when [the store is away](store-away.md) (`ON_ERROR`); [several regions](multi-region.md) (`LIMIT_SHARE`).",
	"Rules over xDS":                      "Rules from [a control plane](xds.md).",
	"Tables from an address":              "Tables of tenants from a server: [rules](rules.md).",
	"Backend":                             "[Stores](backends.md); keys of envoyproxy/ratelimit ([migrate](migrate.md)), or that [show nobody](security.md).",
	"Backends on servers":                 "When [the store is away](store-away.md).",
	"Backend memory":                      "Count [without a server](backends.md#memory), and keep the counters.",
	"Backend redis":                       "[Redis, Valkey, Sentinel, Cluster](backends.md#redis-and-valkey).",
	"Backend redis for per-second limits": "[A Redis of its own](backends.md#a-redis-of-its-own-for-per-second-limits) for limits per second. Each setting means what the one without PERSECOND_ does.",
	"Backend memcache":                    "[memcached](backends.md#memcached).",
	"Kuadrant's RPCs":                     "Reserve and commit hits: [Kuadrant](kuadrant.md).",
	"Envoy's quota protocol":              "Limits that Envoy enforces itself: [quotas](rlqs.md).",
	"Decisions and replies":               "What callers are told; shadow mode.",
	"Request caps":                        "Bounds of requests: [security](security.md).",
	"Metrics":                             "Prometheus, statsd or DogStatsD: [metrics](metrics.md).",
	"Heavy hitters":                       "Which keys are busiest: [ask a running service](admin.md#the-commands).",
	"Denials":                             "Who was denied, and when: [ask a running service](admin.md#denials).",
	"Logging":                             "Decisions, denials and thresholds in [the log](metrics.md#logs).",
	"Tracing":                             "[Traces](tracing.md).",
}

var ranges = regexp.MustCompile(`from (\S+) to (\S+)`)

func reference(t *testing.T) string {
	var b strings.Builder
	b.WriteString(`# Settings

<!-- Written by go test ./pkg/settings -update: change pkg/settings instead. -->

Each setting is an environment variable and a flag of ` + "`rls serve`" + `: REDIS_URL is --redis-url. A flag overrides its
variable. A setting of envoyproxy/ratelimit has its meaning there, and with few exceptions [its default](migrate.md#every-setting).

- Durations are written as 150ms, 10s or 1h30m, booleans as true or false (1, 0, t, f), choices in any case, lists with commas.
- Wrong values end the process at its start; the message names each and the right ones.
- An empty choice is its default. Kubernetes' value for a Service named grpc (GRPC_PORT=tcp://10.0.0.1:8081) is ignored.
- GOGC and GOMEMLIMIT are Go's. Without GOGC it follows the heap's size, up to 400.
`)
	group := ""
	meanings := map[string]string{} // by variable
	for _, flag := range flags(t) {
		if flag.Group.Title != group {
			group = flag.Group.Title
			if reads[group] == "" {
				t.Errorf("reads has no entry for the section %s", group)
			}
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| variable | default; values | meaning |\n|---|---|---|\n", group, reads[group])
		}
		if n := len(strings.Fields(flag.Help)); n > 30 {
			t.Errorf("%s: the meaning has %d words, want at most 30", flag.Envs[0], n)
		}
		meanings[flag.Envs[0]] = flag.Help
		meaning := flag.Help
		if of, ok := strings.CutPrefix(flag.Envs[0], "REDIS_PERSECOND_"); ok && meanings["REDIS_"+of] == meaning {
			meaning = "" // The line above the table tells it.
		}
		var facts []string
		if flag.Default != "" {
			facts = append(facts, "`"+flag.Default+"`")
		}
		if flag.Envs[0] == "BACKEND_TYPE" {
			facts = append(facts, "`redis` for a program named `ratelimit`")
		}
		if values := settings.Values(flag.Value); values != "" {
			facts = append(facts, ranges.ReplaceAllString(values, "$1–$2"))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", flag.Envs[0], strings.Join(facts, "; "), meaning)
	}
	return b.String()
}
