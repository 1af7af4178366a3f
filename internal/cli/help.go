package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Help is the command help.
func Help() Command {
	return Command{Name: "help", Help: "Print help on a command, or on all of them.", Flags: &struct {
		Command string `arg:"" optional:"" help:"The command."`
	}{}}
}

// cutSection cuts the section out of --help=SECTION, writes the command help as --help,
// and returns the arguments that the parser understands.
func cutSection(args []string) (rest []string, section string) {
	rest = slices.Clone(args)
	if len(rest) > 0 && rest[0] == "help" {
		rest = append(rest[1:], "--help")
	}
	for i, arg := range rest {
		if arg == "--" {
			break
		}
		if name, value, found := strings.Cut(arg, "="); found && name == "--help" {
			rest[i], section = name, value
		}
	}
	return rest, section
}

// helpPrinter returns the function that writes the help of a command: the text of kong, and
// behind it the command's Detail as it is written. With a section only the flags of the
// group of that name are listed.
func helpPrinter(section string) kong.HelpPrinter {
	return func(options kong.HelpOptions, ctx *kong.Context) error {
		if section != "" {
			return printSection(options, ctx, cmp.Or(ctx.Selected(), ctx.Model.DefaultCmd), section)
		}
		node := cmp.Or(ctx.Selected(), ctx.Model.Node)
		detail := node.Detail
		node.Detail = ""
		if err := kong.DefaultHelpPrinter(options, ctx); err != nil || detail == "" {
			return err
		}
		_, err := fmt.Fprintf(ctx.Stdout, "\n%s\n", strings.TrimSpace(detail))
		return err
	}
}

func printSection(options kong.HelpOptions, ctx *kong.Context, node *kong.Node, section string) error {
	groups := groupsOf(node)
	group := findGroup(groups, section)
	switch {
	case len(groups) == 0:
		return fmt.Errorf("--help=%s: the help of %s has no sections", section, node.Name)
	case group == "":
		var names []string
		for _, group := range groups {
			names = append(names, groupName(group))
		}
		return fmt.Errorf("--help=%s: the help of %s has no such section: want %s", section, node.Name, strings.Join(names, ", "))
	}
	if _, err := fmt.Fprintf(ctx.Stdout, "Usage: %s %s [flags]\n", ctx.Model.Name, node.Name); err != nil {
		return err
	}
	only := &kong.Node{Type: kong.CommandNode, Name: node.Name} // without other flags and help
	for _, flag := range node.Flags {
		if flag.Group != nil && flag.Group.Title == group {
			only.Flags = append(only.Flags, flag)
		}
	}
	ctx = &kong.Context{Kong: ctx.Kong, Path: []*kong.Path{{App: ctx.Model}, {Command: only}}}
	options.NoAppSummary = true
	return kong.DefaultHelpPrinter(options, ctx)
}

// groupsOf returns the titles of the groups of a command's flags, in their order.
func groupsOf(node *kong.Node) (titles []string) {
	for _, flag := range node.Flags {
		if flag.Group != nil && !flag.Hidden && !slices.Contains(titles, flag.Group.Title) {
			titles = append(titles, flag.Group.Title)
		}
	}
	return titles
}

// groupName is the title as a word of the command line: "Request caps" is request-caps.
func groupName(title string) string { return strings.Join(wordsOf(title), "-") }

func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return strings.ContainsRune(" ,-_", r) })
}

// findGroup returns the title with all words of the section, or "". The section may
// have the beginnings of words. Of several titles the shortest is meant: redis is
// "Backend redis" and not "Backend redis for per-second limits".
func findGroup(titles []string, section string) string {
	wanted := wordsOf(section)
	found, least := "", 0
	for _, title := range titles {
		words := wordsOf(title)
		missing := slices.ContainsFunc(wanted, func(begin string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, begin) })
		})
		if len(wanted) > 0 && !missing && (found == "" || len(words) < least) {
			found, least = title, len(words)
		}
	}
	return found
}
