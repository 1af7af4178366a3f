// Package commands has the commands of the program, with one table of them, but serve, which it is given.
package commands

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/settings"
)

// Main runs the program with the arguments of the process, and ends it.
func Main(serve cli.Command) {
	name := filepath.Base(os.Args[0])
	newProgram(name, serve).Main(arguments(name, os.Args[1:]))
}

func newProgram(name string, serve cli.Command) *cli.Program {
	decoder := settings.NewDecoder()
	return &cli.Program{
		Name:        name,
		Description: "A rate-limit service for Envoy.",
		Detail:      programHelp,
		Flags: &struct {
			ShowVersion versionFlag `name:"version" help:"Print the version."`
		}{},
		Options: append(decoder.Options(defaultBackend(name)), kong.Bind(decoder), defaults()),
		Commands: slices.Concat([]cli.Command{
			serve,
			{Name: "check", Help: "Load rules and print every problem they have.", Detail: checkHelp, Flags: &checkCmd{},
				Gone: map[string]string{"--fix": "each warning says what would be right"}},
			{Name: "diff", Help: "Tell the limits of two sets of rules apart.", Detail: diffHelp, Flags: &diffCmd{}},
			{Name: "table", Help: "Print every problem of a table of limits, a CSV file.", Detail: tableHelp, Flags: &tableCmd{}},
			{Name: "test", Help: "Run unit tests of rules, in simulated time and without a store.", Detail: testHelp, Flags: &testCmd{}},
			{Name: "schema", Help: "Print the JSON Schema of rule files, or of test files, for editors.", Detail: schemaHelp, Flags: &schemaCmd{}},
			{Name: "replay", Help: "Tell what rules would have done to the requests of a log.", Detail: replayHelp, Flags: &replayCmd{}},
			{Name: "explain", Help: "Tell which rules a request matches, and why, and the limits with their keys in the store.", Detail: explainHelp, Flags: &explainCmd{},
				Gone: map[string]string{"--rlqs": "rls_rlqs_assigned_hits_per_second and rls top tell what Envoys are assigned"}},
			{Name: "client", Help: "Send requests to a running service and print its answers, or how fast they were.",
				Detail: clientHelp, Flags: &clientCmd{}, OnSignal: cli.EndsContext},
			{Name: "healthcheck", Help: "Ask a running service whether it is healthy.", Detail: healthcheckHelp, Flags: &healthcheckCmd{}, OnSignal: cli.EndsContext},
			{Name: "status", Help: "Print how a running process does, or all replicas together.", Detail: statusHelp, Flags: &statusCmd{}},
			{Name: "rules", Help: "Print the rules that a running process has in force, with their requests and denials.", Detail: listRulesHelp, Flags: &listRulesCmd{}},
			{Name: "find", Help: "Find a customer: its counters, last denial, and the rules that apply.", Detail: findHelp, Flags: &findCmd{}},
			{Name: "why", Help: "Tell why a customer is denied: counters, changes of limits, denials, outages and grants.", Detail: whyHelp, Flags: &whyCmd{}},
			{Name: "get", Help: "Print the counters of a request in a running process.", Detail: getHelp, Flags: &getCmd{}},
			{Name: "reset", Help: "Empty the counters of a request, or of all values of a rule.", Detail: resetHelp, Flags: &resetCmd{}, OnSignal: cli.EndsContext},
			{Name: "grant", Help: "Let more hits pass than remain, for the running window or until a time.", Detail: grantHelp, Flags: &grantCmd{}},
			{Name: "revoke", Help: "End a grant until a time.", Detail: revokeHelp, Flags: &revokeCmd{}},
			{Name: "denials", Help: "Show the last denials of a running process, or new ones as they come.",
				Detail: denialsHelp, Flags: &denialsCmd{}, OnSignal: cli.EndsContext},
			{Name: "grants", Help: "List the grants in force of a running process, with their unused hits and their end.", Detail: grantsHelp, Flags: &grantsCmd{}},
			{Name: "usage", Help: "Print how much the counters of a rule are used, as text, CSV or JSON.",
				Detail: usageHelp, Flags: &usageCmd{}, OnSignal: cli.EndsContext},
			{Name: "top", Help: "Show the keys that are denied, asked for or charged most in running processes.",
				Detail: topHelp, Flags: &topCmd{}, OnSignal: cli.EndsContext,
				Gone: map[string]string{"--stat": "'watch rls status' shows the state of the process"}},
			{Name: "events", Help: "List what happened to a running process: outages of its store, loads of its rules, changes of counters.",
				Detail: eventsHelp, Flags: &eventsCmd{}, OnSignal: cli.EndsContext},
		}, cli.Completion(), []cli.Command{
			{Name: "version", Help: "Print the version.", Detail: versionHelp, Flags: &versionCmd{}},
			cli.Help(),
		}),
	}
}

// defaultBackend is the default of BACKEND_TYPE for a program that was started
// by that name: as a replacement of envoyproxy/ratelimit it counts in Redis.
func defaultBackend(name string) string {
	if name == "ratelimit" {
		return "redis"
	}
	return "memory"
}

// defaults has texts for the tags of flags, some of which the environment sets.
func defaults() kong.Vars {
	return kong.Vars{
		"descriptor": DescriptorUsage,
		"addr":       cmp.Or(os.Getenv("RLS_ADDR"), "localhost:6071"),
		"domain":     os.Getenv("RLS_DOMAIN"),
		"fleet":      strconv.FormatBool(os.Getenv("RLS_FLEET") == "true"),
	}
}

const programHelp = `Exit codes:
  0  done; 'rls COMMAND --help' has the exit codes of each command
  1  a check failed, a process refused the request, or a process could not be reached
  2  wrong usage, or input that cannot be read

Examples:
  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=config rls serve
  rls client --domain quickstart --descriptor generic_key=hello`

// checker is the name of the program in envoyproxy/ratelimit that checks rules.
// Under this name the program runs the command check.
const checker = "ratelimit_config_check"

// arguments translates the flags of check in envoyproxy/ratelimit, which begin with one dash.
func arguments(name string, args []string) []string {
	if name == checker {
		args = append([]string{"check"}, args...)
	}
	if len(args) == 0 || args[0] != "check" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		flag, _, _ := strings.Cut(arg, "=")
		if flag == "-config_dir" || flag == "-merge_domain_configs" {
			args[i] = "-" + arg
		}
	}
	return args
}

// The last exit codes in the help of a command that asks a process, and the head of its examples.
const (
	exitRefused = "\n  1  the admin API refused, or could not be reached" + exitWrong
	exitWrong   = "\n  2  a flag is wrong, or a file cannot be read\n\nExamples:"
)
