package cli

import (
	"embed"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion are the command completion, and the hidden one that its scripts call. choices
// returns the values that a flag may have by tags other than enum.
func Completion(choices func(*kong.Tag) []string) []Command {
	return []Command{
		{Name: "completion", Help: "Print a script that completes the command line in a shell.", Flags: &completionCmd{}, Detail: `
The script completes commands, flags, their values and names of files. It asks the
program, so that it knows the flags of the version that is installed.

Exit codes:
  0  done
  2  there is no script for this shell

Examples:
  source <(rls completion bash)     # in ~/.bashrc
  source <(rls completion zsh)      # in ~/.zshrc, behind compinit
  rls completion fish > ~/.config/fish/completions/rls.fish`},
		{Name: "__complete", Help: "Print the completions of a command line.", Flags: &completeCmd{choices: choices}, Tags: []string{`hidden:""`}},
	}
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// scripts has a script for each shell, with NAME in place of the program's name.
//
//go:embed completion
var scripts embed.FS

// Run prints the script.
func (c *completionCmd) Run(k *kong.Kong) error {
	script, err := scripts.ReadFile("completion/" + c.Shell)
	if err != nil {
		return err
	}
	_, err = io.WriteString(k.Stdout, strings.ReplaceAll(string(script), "NAME", k.Model.Name))
	return err
}

// completeCmd is the command that the scripts call: it prints a line for each word that may stand
// in place of the last one, with a tab and a description behind it if there is one.
// The line ":files" stands for the names of files.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"The words behind the program's name; the last one is to be completed."`

	choices func(*kong.Tag) []string
}

// Run prints the candidates.
func (c *completeCmd) Run(k *kong.Kong) error {
	var b strings.Builder
	for _, candidate := range complete(k.Model, c.Words, c.choices) {
		b.WriteString(candidate.word)
		if candidate.about != "" {
			fmt.Fprintf(&b, "\t%s", candidate.about)
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(k.Stdout, b.String())
	return err
}
