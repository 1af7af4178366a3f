package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/spelling"
)

// Misspelling is a variable that is not a setting and whose name is close to that of
// one.
type Misspelling struct{ Variable, Meant string }

const (
	// Up to maxEdits letters may be wrong, missing, added or swapped. Names must be long
	// enough that such a likeness is no coincidence.
	maxEdits  = 2
	leastLong = 8
)

// serviceLinks matches the variables that Kubernetes sets in every pod for each
// Service. For a Service named redis these are REDIS_SERVICE_HOST,
// REDIS_PORT=tcp://10.0.0.1:6379 and so on.
var serviceLinks = regexp.MustCompile(`^\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|^\w+_PORT=(tcp|udp|sctp)://`)

func isServiceLink(variable string) bool { return serviceLinks.MatchString(variable) }

// Misspelt finds the variables in environ, each NAME=VALUE as in os.Environ, whose
// names are close to that of a setting of the parser. Variables that Kubernetes sets
// for a Service are left out.
func Misspelt(environment []string, parser *kong.Application) []Misspelling {
	known := variables(parser.Node)
	var found []Misspelling
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if len(name) < leastLong || !strings.Contains(name, "_") || slices.Contains(known, name) || isServiceLink(variable) {
			continue
		}
		meant, least := "", maxEdits+1
		for _, k := range known {
			if d := spelling.Distance(name, k); d < least {
				meant, least = k, d
			}
		}
		if meant != "" {
			found = append(found, Misspelling{name, meant})
		}
	}
	slices.SortFunc(found, func(a, b Misspelling) int { return strings.Compare(a.Variable, b.Variable) })
	return found
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
