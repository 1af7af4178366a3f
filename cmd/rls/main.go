// Command rls is a rate-limit service for Envoy: serve runs it, check reports
// problems of its rules, client sends it a request. This package wires the others
// together.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/settings"
)

type cli struct {
	Serve       serveCmd       `cmd:"" default:"withargs" help:"Serve rate limits (the default). Every flag can be set by the environment variable behind it."`
	Check       checkCmd       `cmd:"" help:"Load rules and print every problem they have."`
	Test        testCmd        `cmd:"" help:"Run unit tests of rules, in simulated time and without a store."`
	Schema      schemaCmd      `cmd:"" help:"Print the JSON Schema of rule files, or of test files, for editors."`
	Replay      replayCmd      `cmd:"" help:"Tell what rules would have done to the requests of a log."`
	Explain     explainCmd     `cmd:"" help:"Tell which rules a request matches, and why, and the limits with their keys in the store."`
	Client      clientCmd      `cmd:"" help:"Send requests to a running service and print its answers, or how fast they were."`
	Healthcheck healthcheckCmd `cmd:"" help:"Ask a running service whether it is healthy."`
	Get         getCmd         `cmd:"" help:"Print the counters of a request in a running process."`
	Reset       resetCmd       `cmd:"" help:"Empty the counters of a request, or of all values of a rule."`
	Grant       grantCmd       `cmd:"" help:"Let more hits pass than remain, for the running window."`
	Top         topCmd         `cmd:"" help:"Show the keys that are denied, asked for or charged most in running processes."`
	Completion  completionCmd  `cmd:"" help:"Print a script that completes the command line in a shell."`
	Complete    completeCmd    `cmd:"" name:"__complete" hidden:"" help:"Print the completions of a command line."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
	HelpOn      helpCmd        `cmd:"" name:"help" help:"Print help on a command, or on all of them."`

	ShowVersion versionFlag `name:"version" help:"Print the version."`
}

// Help implements [kong.HelpProvider].
func (*cli) Help() string {
	return `Exit codes:
  0  done; 'rls COMMAND --help' has the exit codes of each command
  1  a check failed, a process refused the request, or a process could not be reached
  2  wrong usage, or input that cannot be read

Examples:
  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=config rls serve
  rls client --domain quickstart --descriptor generic_key=hello`
}

func main() {
	// This comes first, because an earlier signal would end the process at once,
	// with an exit code of its own.
	ending, stopAwaiting := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	name := filepath.Base(os.Args[0])
	args, section := helpSection(arguments(name, os.Args[1:]))
	parser := newParser(ending, name, section)
	ctx, err := parser.Parse(args)
	if err == nil {
		switch command := ctx.Selected(); {
		case !takesContext(command):
			stopAwaiting()
		case command.Name != "serve": // its draining is not cut short
			context.AfterFunc(ending, stopAwaiting)
		}
		err = ctx.Run()
	}
	if err != nil {
		writeError(os.Stderr, err)
		os.Exit(exitCode(err))
	}
}

// newParser returns the parser of the command line for a program of this name.
// Commands get the context; section is the SECTION of --help=SECTION, or "".
func newParser(ending context.Context, name, section string) *kong.Kong {
	decoder := settings.NewDecoder()
	options := append(decoder.Options(defaultBackend(name)),
		kong.Name(name),
		kong.Description("A rate-limit service for Envoy."),
		kong.Help(helpPrinter(section)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.Bind(decoder),
		kong.BindTo(ending, (*context.Context)(nil)),
	)
	parser, err := kong.New(&cli{}, options...)
	if err != nil {
		panic(err) // the tags of cli are wrong
	}
	return parser
}

// takesContext reports whether the method Run of the command has a parameter
// context.Context. Such a command ends by itself after SIGTERM, SIGINT or SIGHUP,
// which end the context; another signal ends it at once (but not serve), as one signal
// ends the other commands.
func takesContext(command *kong.Node) bool {
	run := command.Target.Addr().MethodByName("Run")
	for in := range run.Type().Ins() {
		if in == reflect.TypeFor[context.Context]() {
			return true
		}
	}
	return false
}

// checker is the name of the program in envoyproxy/ratelimit that checks rules.
// Under this name the program runs the command check.
const checker = "ratelimit_config_check"

// arguments translates arguments that the parser does not understand: help as a
// command, and the flags of check in envoyproxy/ratelimit, which begin with one dash.
func arguments(name string, args []string) []string {
	if name == checker {
		args = append([]string{"check"}, args...)
	}
	if len(args) == 0 {
		return args
	}
	if args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	if args[0] != "check" {
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
