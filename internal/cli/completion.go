package cli

import (
	"embed"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion are the command completion, and the hidden one that its scripts call.
func Completion() []Command {
	return []Command{
		{Name: "completion", Help: "Print a script that completes the command line in a shell.", Flags: &completionCmd{}, Detail: `
The script completes the names of commands and flags. It asks the program, so that it
knows the flags of the version that is installed. All else the shell completes as names
of files.

Exit codes:
  0  done
  2  there is no script for this shell

Examples:
  source <(rls completion bash)     # in ~/.bashrc
  source <(rls completion zsh)      # in ~/.zshrc, behind compinit
  rls completion fish > ~/.config/fish/completions/rls.fish`},
		{Name: "__complete", Help: "Print the completions of a command line.", Flags: &completeCmd{}, Tags: []string{`hidden:""`}},
	}
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"The shell: bash, zsh or fish."`
}

// scripts has a script for each shell, with NAME in place of the program's name.
//
//go:embed completion
var scripts embed.FS

func (c *completionCmd) Run(k *kong.Kong) error {
	script, err := scripts.ReadFile("completion/" + c.Shell)
	if err != nil {
		return err
	}
	_, err = io.WriteString(k.Stdout, strings.ReplaceAll(string(script), "NAME", k.Model.Name))
	return err
}

// completeCmd is the command that the scripts call: it prints a line for each name of a command or
// flag that may stand in place of the last word, with a tab and a description behind it. It prints
// nothing for a value, which the shell completes as the name of a file.
type completeCmd struct {
	Words []string `arg:"" optional:"" help:"The words behind the program's name; the last one is to be completed."`
}

func (c *completeCmd) Run(k *kong.Kong) error {
	words := c.Words
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	var b strings.Builder
	for _, name := range names(k.Model, words[:len(words)-1], last) {
		if strings.HasPrefix(name, last) {
			b.WriteString(name + "\n")
		}
	}
	_, err := io.WriteString(k.Stdout, b.String())
	return err
}

// names returns the names that may follow some words, of flags if the last word begins with a dash.
// Names that do not begin with the last word are among them.
func names(app *kong.Application, before []string, last string) (found []string) {
	commands := app.Leaves(true)
	switch {
	case slices.Contains(before, "--"):
	case strings.HasPrefix(last, "-"):
		flags := app.DefaultCmd.Flags
		for _, command := range commands {
			if len(before) > 0 && command.Name == before[0] {
				flags = command.Flags
			}
		}
		for _, flag := range slices.Concat(app.Flags, flags) {
			if !flag.Hidden {
				found = append(found, "--"+flag.Name+"\t"+sentence(flag.Help))
			}
		}
	case len(before) == 0 || len(before) == 1 && before[0] == "help":
		for _, command := range commands {
			found = append(found, command.Name+"\t"+sentence(command.Help))
		}
	}
	return found
}

func sentence(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(first, ".")
}
