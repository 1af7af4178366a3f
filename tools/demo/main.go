// Demo shows the service behind a real Envoy. It starts a small upstream, bin/rls
// with the rules in rules.yaml and shop.yaml, and Envoy with envoy.yaml, all on free
// ports of the loopback, plays the customers of a small shop, and prints a URL to try
// and the URL of the page with a token. Ctrl-C stops them. With -once it requests the
// first URL itself with curl, prints the answers and ends.
//
// It runs in the repository's root. `make demo` builds bin/rls and fetches Envoy.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	once := flag.Bool("once", false, "do the requests, print the answers and end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, "bin/rls", ".tools/bin/envoy", *once, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run writes to out, until ctx ends or, if once is set, after its own requests.
func run(ctx context.Context, rls, envoy string, once bool, out io.Writer) error {
	s, err := startStage(ctx, rls, envoy)
	if err != nil {
		return err
	}
	defer s.stop()
	url := fmt.Sprintf("http://127.0.0.1:%d/", s.ports.Front)

	if once {
		return try(ctx, url, out)
	}
	_, _ = fmt.Fprintf(out, `
Envoy listens at %[1]s and asks the service about every request:
three pass at once, then one every 20 seconds. Try it a few times:

    curl -i %[1]s

The customers of a small shop are behind the same Envoy. Watch them in a browser:

    page:  http://127.0.0.1:%[3]d/
    token: %[4]s

Envoy's statistics: http://127.0.0.1:%[2]d/stats?filter=ratelimit
Ctrl-C ends the demo.
`, url, s.ports.Admin, s.ports.Page, s.token)
	shopping(s.programs.Context, fmt.Sprintf("http://127.0.0.1:%d", s.ports.Shop))
	return s.wait(ctx)
}

// try requests url until it is over the limit, and once more, and prints the answers of
// curl.
func try(ctx context.Context, url string, out io.Writer) error {
	const requests = 5
	for range requests {
		answer, err := exec.CommandContext(ctx, "curl", "-si", url).Output()
		if err != nil {
			return fmt.Errorf("curl -i %s: %w", url, err)
		}
		if _, err := fmt.Fprintf(out, "$ curl -i %s\n%s\n\n", url, bytes.ReplaceAll(answer, []byte("\r"), nil)); err != nil {
			return err
		}
	}
	return nil
}
