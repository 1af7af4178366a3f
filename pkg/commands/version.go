package commands

import (
	"fmt"
	"io"
	"runtime"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
)

const versionHelp = `Exit codes:
  0  always

Example:
  rls version --format json`

type versionCmd struct {
	cli.Output `set:"output=version"`
}

// versionFlag is --version, which does the same as the command.
type versionFlag bool

// BeforeReset is called by kong when it meets the flag, before it checks other
// arguments. It prints the version and ends the process.
func (versionFlag) BeforeReset(k *kong.Kong) error {
	if err := (&versionCmd{}).Run(k); err != nil {
		return err
	}
	k.Exit(0)
	return nil
}

func (c *versionCmd) Run(k *kong.Kong) error {
	release, commit := cli.Build()
	document := struct {
		Version  string `json:"version"`
		Revision string `json:"revision"` // "" if it is not known
		Go       string `json:"go"`
		OS       string `json:"os"`
		Arch     string `json:"arch"`
	}{release, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH}
	return c.Write(k.Stdout, document, func(w io.Writer) error {
		if commit != "" {
			release += " (" + commit + ")"
		}
		_, err := fmt.Fprintf(w, "rls %s %s %s/%s\n", release, document.Go, document.OS, document.Arch)
		return err
	})
}
