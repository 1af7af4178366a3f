// Package commands has the commands of an operator, which ask the admin APIs of running processes
// and print the answers: status, rules, find, get, reset, grant, denials, grants, top and events.
package commands

import "example.org/rls/internal/cli"

// All are the commands, in the order of the program's help.
func All() []cli.Command {
	return []cli.Command{
		{Name: "status", Help: "Print how a running process does, or all replicas together.", Detail: statusHelp, Flags: &statusCmd{}},
		{Name: "rules", Help: "Print the rules that a running process has in force, with their requests and denials.", Detail: listRulesHelp, Flags: &listRulesCmd{}},
		{Name: "find", Help: "Tell where a value can stand in the rules, and which keys of requests have it.", Detail: findHelp, Flags: &findCmd{}},
		{Name: "get", Help: "Print the counters of a request in a running process.", Detail: getHelp, Flags: &getCmd{}},
		{Name: "reset", Help: "Empty the counters of a request, or of all values of a rule.", Detail: resetHelp, Flags: &resetCmd{}, OnSignal: cli.EndsContext},
		{Name: "grant", Help: "Let more hits pass than remain, for the running window.", Detail: grantHelp, Flags: &grantCmd{}},
		{Name: "denials", Help: "Show the last denials of a running process, or new ones as they come.",
			Detail: denialsHelp, Flags: &denialsCmd{}, OnSignal: cli.EndsContext},
		{Name: "grants", Help: "List the grants in force of a running process, with their unused hits and their end.", Detail: grantsHelp, Flags: &grantsCmd{}},
		{Name: "top", Help: "Show the keys that are denied, asked for or charged most in running processes.",
			Detail: topHelp, Flags: &topCmd{}, OnSignal: cli.EndsContext,
			Gone: map[string]string{"--stat": "'watch rls status' shows the state of the process"}},
		{Name: "events", Help: "List what happened to a running process: outages of its store, loads of its rules, changes of counters.",
			Detail: eventsHelp, Flags: &eventsCmd{}, OnSignal: cli.EndsContext},
	}
}

// The last exit codes in the help of a command that asks a process, and the head of its examples.
const (
	exitRefused = "\n  1  the admin API refused, or could not be reached" + exitWrong
	exitWrong   = "\n  2  a flag is wrong, or a file cannot be read\n\nExamples:"
)
