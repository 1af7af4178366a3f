// Command rls is a rate-limit service for Envoy: serve runs it, check tells
// what is wrong with its rules. Here is wiring only.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/settings"
)

type cli struct {
	Serve   serveCmd   `cmd:"" default:"withargs" help:"Serve rate limits (the default). Every flag can be set by the environment variable behind it."`
	Check   checkCmd   `cmd:"" help:"Load rules and print every problem they have."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// Exit codes besides 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	var c cli
	decoder := settings.NewDecoder()
	name := filepath.Base(os.Args[0])
	options := append(decoder.Options(defaultBackend(name)),
		kong.Name(name),
		kong.Description("A rate-limit service for Envoy."),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.Bind(decoder),
	)
	parser, err := kong.New(&c, options...)
	if err != nil {
		panic(err) // the commands above are not what kong can parse
	}
	ctx, err := parser.Parse(os.Args[1:])
	if err != nil {
		fail(exitUsage, name, err)
	}
	if err := ctx.Run(); err != nil {
		fail(exitFailed, name, err)
	}
}

// defaultBackend depends on the name that the program was started by: as a
// replacement of envoyproxy/ratelimit it counts where that one does.
func defaultBackend(name string) string {
	if name == "ratelimit" {
		return "redis"
	}
	return "memory"
}

func fail(code int, name string, err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	os.Exit(code)
}
