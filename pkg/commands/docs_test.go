package commands

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/process"
)

// set is flags that several commands have.
type set struct {
	heading string
	flags   []string
}

// isOf reports whether a command has all flags of the set.
func (s *set) isOf(c *kong.Node) bool {
	return !slices.ContainsFunc(s.flags, func(name string) bool {
		return !slices.ContainsFunc(c.Flags, func(f *kong.Flag) bool { return f.Name == name })
	})
}

var sets = []set{
	{"Request", []string{"domain", "descriptor", "pool", "limit"}},
	{"Fleet", []string{"fleet"}},
	{"Access", []string{"addr", "token-file", "timeout"}},
	{"TLS", []string{"tls", "ca", "cert", "key", "server-name"}},
	{"Output", []string{"format"}},
}

const access = 2 // in sets; commands that have it have those behind it

const serveSettings = "Settings of serve" // the group of flags that are settings

// TestDocs compares docs/commands.md with the commands: each stands there once, with its arguments and flags.
func TestDocs(t *testing.T) {
	t.Setenv("RLS_ADDR", "")
	t.Setenv("RLS_DOMAIN", "")
	t.Setenv("RLS_FLEET", "")
	testenv.Golden(t, "../../docs/commands.md", reference(t), "pkg/commands")
}

// line is the item of a flag: its form, and the first sentence of its help.
func line(f *kong.Flag) string {
	form := strings.ReplaceAll(f.String(), `"`, "") // kong quotes the default of a text
	return fmt.Sprintf("- `%s`: %s\n", form, written.ReplaceAllString(firstSentence(f.Help), "How the output is written: text or json"))
}

// written is how each command names its output.
var written = regexp.MustCompile(`How the \w+ is written: text or json`)

func firstSentence(help string) string {
	if end := strings.Index(help, ". "); end >= 0 {
		return help[:end+1]
	}
	return help
}

func isSetting(f *kong.Flag) bool { return f.Group != nil && f.Group.Title == serveSettings }

func reference(t *testing.T) string {
	parser, _ := newProgram("rls", process.Serve()).Parser(t.Context(), nil)
	commands := parser.Model.Leaves(true)
	own := func(c *kong.Node) []*kong.Flag {
		return slices.DeleteFunc(slices.Clone(c.Flags), func(f *kong.Flag) bool {
			return f.Hidden || f.Name == "help" || f.Name == "version" || c.Name == "serve" || isSetting(f)
		})
	}
	users := map[string]int{} // of a line, the commands that have it
	for _, c := range commands {
		for _, f := range own(c) {
			users[line(f)]++
		}
	}
	shared := map[string]string{} // lines of the sets, by their flags
	var body strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&body, "\n## rls %s\n\n%s", c.Name, firstSentence(c.Help))
		var lines []string
		for _, a := range c.Positional {
			lines = append(lines, fmt.Sprintf("- `%s`: %s\n", a.Summary(), firstSentence(a.Help)))
		}
		has := make([]bool, len(sets))
		for _, f := range own(c) {
			set := slices.IndexFunc(sets, func(s set) bool {
				return users[line(f)] > 2 && slices.Contains(s.flags, f.Name) && s.isOf(c)
			})
			if set < 0 {
				lines = append(lines, line(f))
				continue
			}
			has[set], shared[f.Name] = true, line(f)
		}
		lacks := func(i int) bool { return !has[i] && !sets[i].isOf(c) } // one with other words has its own lines
		if has[access] && (lacks(access+1) || lacks(access+2)) {
			t.Errorf("rls %s has the flags of %s without those that the document says come with them", c.Name, sets[access].heading)
		}
		var also []string
		for i := range sets {
			if has[i] && (i <= access || !has[access]) {
				also = append(also, fmt.Sprintf("[%s](#%s-flags)", sets[i].heading, strings.ToLower(sets[i].heading)))
			}
		}
		switch {
		case c.Name == "serve":
			also = append(also, "each [setting](settings.md)")
		case slices.ContainsFunc(c.Flags, isSetting):
			also = append(also, "[settings](settings.md#rules)")
		}
		if len(also) > 0 {
			fmt.Fprintf(&body, " Flags: %s.", strings.Join(also, ", "))
		}
		body.WriteString("\n")
		if len(lines) > 0 {
			body.WriteString("\n" + strings.Join(lines, ""))
		}
	}
	for _, s := range sets {
		fmt.Fprintf(&body, "\n## %s flags\n\n", s.heading)
		for _, name := range s.flags {
			if shared[name] == "" {
				t.Errorf("no command shares the flag --%s", name)
			}
			body.WriteString(shared[name])
		}
	}
	return `# Commands

<!-- Written by go test ./pkg/commands -update: change pkg/commands instead. -->

` + "`rls COMMAND --help`" + ` says more, with exit codes and examples. [Ask a running service](admin.md) has the commands by task. With the flags of Access come those of [TLS](#tls-flags) and [Output](#output-flags).
` + body.String()
}
