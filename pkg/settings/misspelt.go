package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/spelling"
)

// Misspelling is a variable that is not a setting.
type Misspelling struct {
	Variable string
	Meant    string // the setting that its name most likely means; "" of one that has gone
	Gone     string // for a setting that has gone, a sentence that says what holds in its place
}

// leastLong is the least length of names whose likeness to a setting is no coincidence.
const leastLong = 8

// habits are names that other programs have for settings.
var habits = map[string]string{
	"LOGLEVEL":                 "LOG_LEVEL",
	"REDIS_ADDR":               "REDIS_URL",
	"REDIS_ADDRESS":            "REDIS_URL",
	"REDIS_HOST":               "REDIS_URL",
	"REDIS_PASSWORD":           "REDIS_AUTH",
	"REDIS_PERSECOND_ADDR":     "REDIS_PERSECOND_URL",
	"REDIS_PERSECOND_HOST":     "REDIS_PERSECOND_URL",
	"REDIS_PERSECOND_PASSWORD": "REDIS_PERSECOND_AUTH",
}

// gone are settings that there were.
var gone = map[string]string{
	"BREAKER_FAILURE_RATIO":     breakersOpen,
	"BREAKER_MIN_CALLS":         breakersOpen,
	"BREAKER_WINDOW":            breakersOpen,
	"GRPC_STREAM_WORKERS":       "nothing takes its place: 64 goroutines are kept for calls, and further calls start their own",
	"KUADRANT_RLS_MAX_FRACTION": "nothing takes its place: the limit itself bounds the hits that are held",
	"REQUEST_MAX_ENTRY_BYTES":   "nothing takes its place: a key or value above 1,024 bytes counts by its SHA-256",
	"RUNTIME_POLL_INTERVAL":     "nothing takes its place: files are looked at every 1.75 s, and read on SIGHUP at once",
}

const breakersOpen = "nothing takes its place: calls to a server fail at once when half of its calls failed or were slow, of 5 in the last second at least"

// GoneFlags has for each flag of a setting that has gone what holds in its place.
func GoneFlags() map[string]string {
	flags := make(map[string]string, len(gone))
	for name, instead := range gone {
		flags["--"+strings.ToLower(strings.ReplaceAll(name, "_", "-"))] = instead
	}
	return flags
}

// habitPrefix stands before the names of settings where people name variables after the program.
const habitPrefix = "RATELIMIT_"

// serviceLinks matches the variables that Kubernetes sets in every pod for each
// Service. For a Service named redis these are REDIS_SERVICE_HOST,
// REDIS_PORT=tcp://10.0.0.1:6379 and so on.
var serviceLinks = regexp.MustCompile(`^\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|^\w+_PORT=(tcp|udp|sctp)://`)

func isServiceLink(variable string) bool { return serviceLinks.MatchString(variable) }

// Misspelt finds the variables in environ, each NAME=VALUE as in os.Environ, whose
// names are close to that of a setting of the parser, or are those of other programs for it, and
// those of settings that have gone.
// Variables that Kubernetes sets for a Service are left out.
func Misspelt(environment []string, parser *kong.Application) []Misspelling {
	known := variables(parser.Node)
	var found []Misspelling
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if slices.Contains(known, name) || isServiceLink(variable) {
			continue
		}
		m := Misspelling{Variable: name, Gone: gone[strings.TrimPrefix(name, habitPrefix)]}
		if m.Gone == "" {
			m.Meant = meantBy(name, known)
		}
		if m.Meant != "" || m.Gone != "" {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b Misspelling) int { return strings.Compare(a.Variable, b.Variable) })
	return found
}

// meantBy returns the known name that another name most likely means, or "".
func meantBy(name string, known []string) string {
	if meant := habits[name]; meant != "" {
		return meant
	}
	if rest, found := strings.CutPrefix(name, habitPrefix); found {
		if slices.Contains(known, rest) {
			return rest
		}
		return meantBy(rest, known)
	}
	if len(name) < leastLong || !strings.Contains(name, "_") {
		return ""
	}
	return spelling.Nearest(name, known)
}

func variables(n *kong.Node) []string {
	var names []string
	for _, flag := range n.Flags {
		names = append(names, flag.Envs...)
	}
	for _, child := range n.Children {
		names = append(names, variables(child)...)
	}
	return names
}
