package commands

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/process"
)

// output returns what the program writes for the arguments of a command that ends without
// the process, or for arguments that ask for help, and its error.
func output(t *testing.T, args ...string) (text string, err error) {
	t.Helper()
	parser, args := newProgram("rls", process.Serve()).Parser(t.Context(), args)
	var out strings.Builder
	const ended = "help was written"
	parser.Stdout, parser.Exit = &out, func(int) { panic(ended) }
	func() {
		defer func() {
			if r := recover(); r != nil && r != ended {
				panic(r)
			}
		}()
		var ctx *kong.Context
		if ctx, err = parser.Parse(args); err == nil {
			err = ctx.Run()
		}
	}()
	return out.String(), err
}

// Every command says how it ends, shows an example, and can write JSON if it
// writes anything for programs to read.
func TestHelpOfEveryCommand(t *testing.T) {
	withoutFormat := map[string]string{
		"serve":      "it runs until a signal, and LOG_FORMAT=json is the form of its log",
		"schema":     "its output is JSON always",
		"completion": "its output is a script",
		"help":       "its output is for people",
	}
	parser, _ := newProgram("rls", process.Serve()).Parser(t.Context(), nil)
	commands := parser.Model.Leaves(true)
	if len(commands) < 5 {
		t.Fatalf("only %d commands", len(commands))
	}
	example := regexp.MustCompile(`(?m)^Examples?:\n +\S`)
	code := regexp.MustCompile(`(?m)^ +0  \S`)
	for _, command := range commands {
		t.Run(command.Name, func(t *testing.T) {
			if command.Name == "help" {
				return // help help is the help of the program
			}
			text, err := output(t, append(strings.Fields(command.Path()), "--help")...)
			if err != nil || !strings.HasPrefix(text, "Usage: rls "+command.Name+" ") {
				t.Fatalf("%v\n%s", err, text)
			}
			_, after, found := strings.Cut(text, "\nExit codes:\n")
			if !found || !code.MatchString(after) {
				t.Errorf("no list of exit codes in\n%s", text)
			}
			if !example.MatchString(text) {
				t.Errorf("no example in\n%s", text)
			}
			if _, none := withoutFormat[command.Name]; !none && !strings.Contains(text, "--format") {
				t.Errorf("no --format in\n%s", text)
			}
		})
	}
}

// The help of serve has the headings of docs/settings.md, and each can be asked for.
func TestSectionsOfHelp(t *testing.T) {
	doc, err := os.ReadFile("../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllSubmatch(doc, -1) {
		headings = append(headings, string(match[1]))
	}
	whole, err := output(t, "serve", "--help")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for line := range strings.Lines(whole) {
		if line = strings.TrimSpace(line); slices.Contains(headings, line) {
			shown = append(shown, line)
		}
	}
	if len(headings) < 10 || !slices.Equal(shown, headings) {
		t.Errorf("headings %q, sections %q", headings, shown)
	}
	for _, heading := range headings {
		for _, name := range []string{heading, strings.NewReplacer(",", "", " ", "-").Replace(strings.ToLower(heading))} {
			text, err := output(t, "serve", "--help="+name)
			if err != nil || !strings.Contains(text, "\n"+heading+"\n  --") {
				t.Errorf("--help=%s: %v\n%s", name, err, text)
			}
			for _, other := range headings {
				if other != heading && strings.Contains(text, "\n"+other+"\n") {
					t.Errorf("--help=%s also has %s", name, other)
				}
			}
		}
	}
}

func TestNamesOfSections(t *testing.T) {
	for section, want := range map[string]string{
		"redis": "Backend redis", "REDIS": "Backend redis", "per-second": "Backend redis for per-second limits",
		"backend": "Backend", "log": "Logging", "xds": "Rules over xDS", "http": "HTTP, debug and health",
	} {
		text, err := output(t, "serve", "--help="+section)
		if err != nil || !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("--help=%s: %v, want %s in\n%s", section, err, want, text)
		}
	}
	_, err := output(t, "serve", "--help=nonsense")
	if cli.ExitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), "backend-redis") || !strings.Contains(err.Error(), "tracing") {
		t.Errorf("--help=nonsense: %v", err)
	}
	if _, err := output(t, "check", "--help=redis"); cli.ExitCode(err) != cli.ExitUsage {
		t.Errorf("check --help=redis: %v", err)
	}
	// serve is the default command.
	if text, err := output(t, "--help=redis"); err != nil || !strings.Contains(text, "--redis-url") {
		t.Errorf("--help=redis: %v\n%s", err, text)
	}
}
