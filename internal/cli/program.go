// Package cli runs a program that has several commands. The commands share its exit codes,
// help, completion in shells, output as text or JSON, and connections.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/spelling"
)

// Program is a program that has several commands.
type Program struct {
	Name        string
	Description string
	Detail      string    // the end of the program's help
	Flags       any       // a pointer to a struct with the flags before a command
	Commands    []Command // in the order of the help
	Options     []kong.Option
}

// Command is a command of a program.
type Command struct {
	Name   string
	Help   string // a sentence
	Detail string // the end of the command's help: exit codes and examples
	// Flags is a pointer to a struct, whose fields are the command's flags and arguments.
	// Its method Run runs the command.
	Flags    any
	OnSignal Signal
	Tags     []string // for kong, such as hidden:""
	// Gone has for each flag that there was, such as --fix, what holds or does the same in its place.
	Gone map[string]string
}

// Signal is the effect of SIGTERM, SIGINT and SIGHUP on a command.
type Signal int

const (
	EndsProcess Signal = iota // with the exit code of the signal
	EndsContext               // of Run; another signal ends the process
	// Drains is for a server: the first SIGTERM or SIGINT ends the context of Run, later
	// ones are ignored, and SIGHUP has no effect but what Run gives it.
	Drains
)

// Main runs the command that the arguments name. It ends the process if that fails.
func (p *Program) Main(args []string) {
	// This comes first, because an earlier signal would end the process at once,
	// with an exit code of its own.
	drained, stopAwaiting := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	ending, stopHangups := signal.NotifyContext(drained, syscall.SIGHUP)
	parser, args := p.Parser(ending, args)
	ctx, err := parser.Parse(args)
	if err == nil {
		switch p.command(ctx.Selected().Name).OnSignal {
		case EndsProcess:
			stopHangups()
			stopAwaiting()
			ctx.BindTo(context.Background(), (*context.Context)(nil))
		case EndsContext:
			context.AfterFunc(ending, func() {
				stopHangups()
				stopAwaiting()
			})
		case Drains:
			ctx.BindTo(drained, (*context.Context)(nil))
		}
		err = ctx.Run()
	} else {
		err = p.explain(err, parser.Model, args)
	}
	if err != nil {
		WriteError(os.Stderr, err)
		os.Exit(ExitCode(err))
	}
}

// Parser returns the parser of a command line, and the arguments in a form that it
// understands. Commands get the context.
func (p *Program) Parser(ctx context.Context, args []string) (*kong.Kong, []string) {
	args, section := cutSection(args)
	options := slices.Concat(p.Options, []kong.Option{
		kong.Name(p.Name),
		kong.Description(p.Description),
		kong.Help(helpPrinter(section)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.PostBuild(func(k *kong.Kong) error {
			k.Model.Detail = p.Detail
			for _, node := range k.Model.Children {
				node.Detail = p.command(node.Name).Detail
			}
			return nil
		}),
	})
	for _, c := range p.Commands {
		options = append(options, kong.DynamicCommand(c.Name, c.Help, "", c.Flags, c.Tags...))
	}
	parser, err := kong.New(p.Flags, options...)
	if err != nil {
		panic(err) // the tags of flags are wrong
	}
	return parser, args
}

// explain returns the error of the parser, or one that says more: what takes the place of a flag
// that has gone, the command's help for another flag that it does not have, and the names of the
// commands if the first of the arguments is a word and none of them.
func (p *Program) explain(err error, model *kong.Application, args []string) error {
	node, named := model.DefaultCmd, len(args) > 0 && !strings.HasPrefix(args[0], "-")
	if named {
		i := slices.IndexFunc(model.Children, func(n *kong.Node) bool { return n.Name == args[0] })
		if i < 0 {
			return UsageError("unknown command %q%s", args[0], spelling.Suggest(args[0], commandNames(model)))
		}
		node = model.Children[i]
	}
	flag, unknown := strings.CutPrefix(err.Error(), "unknown flag ")
	if !unknown {
		return err
	}
	flag, _, _ = strings.Cut(flag, ",") // kong's suggestion
	if instead := p.command(node.Name).Gone[flag]; instead != "" {
		return UsageError("%s has gone: %s", flag, instead)
	}
	if !named {
		return err
	}
	return fmt.Errorf("%w (see rls %s --help)", err, node.Name)
}

func commandNames(model *kong.Application) (names []string) {
	for _, node := range model.Leaves(true) {
		names = append(names, node.Name)
	}
	return names
}

func (p *Program) command(name string) Command {
	return p.Commands[slices.IndexFunc(p.Commands, func(c Command) bool { return c.Name == name })]
}

// Output is the flag --format of a command that can write text or one JSON document.
// Where the struct is embedded, the tag set:"output=answer" is the name of the result in the help.
type Output struct {
	Format string `default:"text" enum:"text,json" help:"How the ${output} is written: text or json."`
}

// JSON reports whether a JSON document is wanted.
func (o *Output) JSON() bool { return o.Format == "json" }

// Write writes the document as JSON on one line, or calls text.
func (o *Output) Write(w io.Writer, document any, text func(io.Writer) error) error {
	if o.JSON() {
		return WriteJSON(w, document)
	}
	return text(w)
}

// WriteJSON writes a document as JSON on one line.
func WriteJSON(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(document)
}

// Version is the one that the linker sets in releases, else "".
var Version string

// Revision is the commit that the linker sets in releases, else "".
var Revision string

// Build returns the version and the commit that this program was built from; the
// commit is empty if neither the linker nor the toolchain knew it.
func Build() (release, commit string) {
	release, commit = Version, Revision
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release, commit
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = cmp.Or(commit, s.Value)
		}
	}
	return cmp.Or(release, info.Main.Version), commit
}
