package cli

import (
	"cmp"
	"embed"
	"io"
	"reflect"
	"regexp"
	"slices"
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

func (c *completeCmd) Run(k *kong.Kong) error {
	l, last := line{app: k.Model, choices: c.choices}, ""
	for i, word := range c.Words {
		if i > 0 {
			l.read(last)
		}
		last = word
	}
	var b strings.Builder
	for _, candidate := range l.candidates(last) {
		if candidate == files || strings.HasPrefix(candidate, last) {
			b.WriteString(strings.TrimSuffix(candidate, "\t") + "\n")
		}
	}
	_, err := io.WriteString(k.Stdout, b.String())
	return err
}

// files stands for the names of files.
const files = ":files"

// line is a command line as far as it has been read.
type line struct {
	app     *kong.Application
	command *kong.Node // nil before the name of a command
	flag    *kong.Flag // waits for its value in the next word
	args    int        // arguments of the command so far
	noFlags bool       // after --
	used    []string   // names of flags
	choices func(*kong.Tag) []string
}

// read takes a word before the last one.
func (l *line) read(word string) {
	name, _, hasValue := strings.Cut(word, "=")
	switch {
	case l.flag != nil:
		l.flag = nil
	case l.noFlags:
		l.args++
	case word == "--":
		l.noFlags = true
	case strings.HasPrefix(word, "--"):
		l.used = append(l.used, name[2:])
		if flag := l.findFlag(name[2:]); flag != nil && !flag.IsBool() && !hasValue {
			l.flag = flag
		}
	case strings.HasPrefix(word, "-") && word != "-":
	case l.command == nil:
		l.command = &kong.Node{} // of an unknown name: nothing can be said
		for _, command := range l.app.Leaves(true) {
			if command.Name == word {
				l.command = command
			}
		}
	default:
		l.args++
	}
}

// candidates returns the words that may follow, also words that do not begin with the last word,
// with a tab and a description behind them if there is one.
func (l *line) candidates(last string) (found []string) {
	name, _, hasValue := strings.Cut(last, "=")
	switch {
	case l.flag != nil:
		return l.values(l.flag.Value)
	case strings.HasPrefix(last, "-") && last != "-" && !l.noFlags && hasValue:
		flag := l.findFlag(strings.TrimPrefix(name, "--"))
		if flag == nil {
			return nil
		}
		for _, value := range l.values(flag.Value) {
			if value != files {
				value = name + "=" + value
			}
			found = append(found, value)
		}
	case strings.HasPrefix(last, "-") && !l.noFlags:
		return l.flagNames()
	case l.command == nil || l.command.Name == "help":
		for _, command := range l.app.Leaves(true) {
			found = append(found, command.Name+"\t"+sentence(command.Help))
		}
	case len(l.command.Positional) > 0:
		return l.values(l.command.Positional[min(l.args, len(l.command.Positional)-1)])
	}
	return found
}

// commandOrDefault returns the command to which flags belong.
func (l *line) commandOrDefault() *kong.Node { return cmp.Or(l.command, l.app.DefaultCmd) }

func (l *line) flags() []*kong.Flag {
	found := slices.Concat(l.app.Flags, l.commandOrDefault().Flags)
	return slices.DeleteFunc(found, func(flag *kong.Flag) bool { return flag.Hidden })
}

func (l *line) findFlag(name string) *kong.Flag {
	for _, flag := range l.flags() {
		if flag.Name == name {
			return flag
		}
	}
	return nil
}

// flagNames returns the flags that may stand in the line and do not yet.
func (l *line) flagNames() (found []string) {
	for _, flag := range l.flags() {
		if again := flag.IsSlice() || flag.IsCumulative(); again || !slices.Contains(l.used, flag.Name) {
			found = append(found, "--"+flag.Name+"\t"+sentence(flag.Help))
		}
	}
	return found
}

// values returns the values of a flag or an argument.
func (l *line) values(v *kong.Value) (found []string) {
	choices := v.Tag.Enum
	if choices == "" {
		choices = strings.Join(l.choices(v.Tag), ",")
	}
	switch {
	case v.Name == "help" && v.Flag != nil:
		for _, group := range groupsOf(l.commandOrDefault()) {
			found = append(found, groupName(group)+"\t"+group)
		}
	case choices != "":
		found = strings.Split(choices, ",")
	case v.IsBool():
		found = []string{"true", "false"}
	case v.Flag == nil && isText(v), v.Flag != nil && namesFile(v.Flag):
		found = []string{files}
	}
	return found
}

func isText(v *kong.Value) bool {
	t := v.Target.Type()
	return t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String
}

var aboutFiles = regexp.MustCompile(`\b([Ff]iles?|[Ff]olders?|[Pp]ath)\b`)

// namesFile reports whether the value of a flag is the name of a file or folder.
func namesFile(flag *kong.Flag) bool {
	return isText(flag.Value) && (slices.Contains([]string{"FILE", "DIR", "PATH"}, flag.PlaceHolder) || aboutFiles.MatchString(flag.Help))
}

func sentence(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(first, ".")
}
