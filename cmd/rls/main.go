// Command rls is a rate-limit service for Envoy: serve runs it, check reports problems of its
// rules, client sends it a request.
package main

import (
	"example.org/rls/internal/cli"
	"example.org/rls/pkg/commands"
	"example.org/rls/pkg/process"
)

// The linker sets version and revision in releases.
var version, revision string

func main() {
	cli.Version, cli.Revision = version, revision
	commands.Main(process.Serve())
}
