// Demo shows the service behind a real Envoy. It starts a small upstream, bin/rls and
// Envoy on the loopback, with the rules and the envoy.yaml of a folder, and ends them on
// Ctrl-C. `make demo` builds bin/rls and fetches Envoy; it runs in the repository's root.
//
// Without flags the folder is tools/demo: it plays the customers of a small shop, and
// prints a URL to try and the URL of the page with a token.
//
// With -recipe NAME the folder is deploy/recipes/NAME: it runs the recipe's try.sh and
// prints the output. Then it starts all anew, with empty counters, for the user to try.
// With -once it runs try.sh of the folder, prints the output and ends. An unknown NAME is answered
// with the names; the exit code is 2.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	d := demo{root: ".", rls: "bin/rls", envoy: ".tools/bin/envoy", front: 8000}
	flag.StringVar(&d.recipe, "recipe", "", "play this folder of deploy/recipes")
	flag.BoolVar(&d.once, "once", false, "do the requests, print the answers and end")
	flag.Parse()
	if names, err := d.recipes(); err != nil || d.recipe != "" && !slices.Contains(names, d.recipe) {
		fmt.Fprintf(os.Stderr, "demo: there is no recipe %q; the recipes are: %s\n", d.recipe, strings.Join(names, ", "))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := d.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo says what to show.
type demo struct {
	root       string // the repository
	rls, envoy string // the programs
	recipe     string // a folder of deploy/recipes, or "" for the shop
	once       bool   // end after the demo's own requests
	front      int    // the port to try, if it is free
}

// recipes returns the names of all recipes.
func (d *demo) recipes() (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(d.root, "deploy/recipes/*/try.sh"))
	for _, f := range files {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	return names, err
}

// run writes to out, until ctx ends or, if once is set, after its own requests.
func (d *demo) run(ctx context.Context, out io.Writer) error {
	if d.recipe != "" || d.once {
		if err := d.play(ctx, out); err != nil || d.once {
			return err
		}
		_, _ = fmt.Fprint(out, "\nEverything starts anew, with empty counters.\n")
	}
	s, err := d.start(ctx, d.front, out)
	if err != nil {
		return err
	}
	defer s.stop()
	url := fmt.Sprintf("http://127.0.0.1:%d", s.ports.Front)
	if d.recipe != "" {
		_, _ = fmt.Fprintf(out, `
Try it yourself, once:

    sh deploy/recipes/%[1]s/try.sh %[2]s

Or send other requests to %[2]s. deploy/recipes/%[1]s/README.md
explains the recipe; changes of its rules take effect at once.
`, d.recipe, url)
	} else {
		_, _ = fmt.Fprintf(out, `
Envoy listens at %[1]s/ and asks the service about every request:
three pass at once, then one every 20 seconds. Try it a few times:

    curl -i %[1]s/

The customers of a small shop are behind the same Envoy. Watch them in a browser.
`, url)
		shopping(s.programs.ctx, fmt.Sprintf("http://127.0.0.1:%d", s.ports.Shop))
	}
	_, _ = fmt.Fprintf(out, `
    page:  http://127.0.0.1:%d/
    token: %s

Envoy's statistics: http://127.0.0.1:%d/stats?filter=ratelimit
Ctrl-C ends the demo.
`, s.ports.Page, s.token, s.ports.Admin)
	return s.wait(ctx)
}

// play runs the folder's try.sh on a stage of its own.
func (d *demo) play(ctx context.Context, out io.Writer) error {
	s, err := d.start(ctx, 0, out)
	if err != nil {
		return err
	}
	defer s.stop()
	script := filepath.Join(d.folder(), "try.sh")
	_, _ = fmt.Fprintf(out, "\n$ sh %s\n", script)
	cmd := exec.CommandContext(s.programs.ctx, "sh", script, fmt.Sprintf("http://127.0.0.1:%d", s.ports.Front))
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", script, err)
	}
	return nil
}
