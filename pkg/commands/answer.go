package commands

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
)

// fleetFlag is the flag of a command that can ask for all replicas.
type fleetFlag struct {
	Fleet bool `default:"${fleet}" help:"Ask for all replicas: the process at --addr asks those that its ADMIN_FLEET lists. A replica that does not answer is named on stderr. $RLS_FLEET is the default."`
}

// AfterApply refuses a wrong default.
func (f *fleetFlag) AfterApply() error {
	if text := os.Getenv("RLS_FLEET"); text != "" && text != "true" && text != "false" {
		return cli.UsageError("RLS_FLEET is %q: want true or false", text)
	}
	return nil
}

// fleetAsk are the flags of a command that asks one process, or for all replicas.
type fleetAsk struct {
	adminAsk
	fleetFlag
}

// show asks for the document of a path, whose replicas are a part of it, and prints it. It names
// the replicas that do not answer on stderr, or says there that the answer is of one replica.
func (a *adminAsk) show(ctx context.Context, k *kong.Kong, path string, query admin.Query, document any, replicas *[]client.Replica, text func(*sheet)) error {
	api, err := a.client(a.Addr)
	if err == nil {
		err = a.ask(ctx, api, query.To(path), nil, document)
	}
	if err != nil {
		return err
	}
	warnOfAnswer(k.Stderr, api, *replicas)
	return a.print(k, document, text)
}

// print writes a document as JSON on one line, or the lines of text.
func (a *adminAsk) print(k *kong.Kong, document any, text func(*sheet)) error {
	return a.Write(k.Stdout, document, func(w io.Writer) error {
		var b bytes.Buffer
		s := &sheet{tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)}
		text(s)
		_ = s.Flush() // to memory
		_, err := b.WriteTo(w)
		return err
	})
}

// sheet is text for a person, in columns that tabs end.
type sheet struct{ *tabwriter.Writer }

// addf adds text. In strings among the arguments, which others may have written, it makes
// control characters visible.
func (s *sheet) addf(format string, args ...any) {
	for i := range args {
		if text, is := args[i].(string); is {
			args[i] = terminal.Visible(text)
		}
	}
	_, _ = fmt.Fprintf(s, format, args...)
}

// addIf adds text if something is so.
func (s *sheet) addIf(is bool, format string, args ...any) {
	if is {
		s.addf(format, args...)
	}
}

// sinceFlag is the flag of a command that shows the past.
type sinceFlag struct {
	Since *time.Duration `placeholder:"DURATION" min:"1ms" help:"How far back, such as 1h; without it as far as the process remembers."`
}

// from is the time from which on an answer of a process knows all that the flag asks for.
func (f *sinceFlag) from(remembered, now time.Time) time.Time {
	if f.Since != nil && now.Add(-*f.Since).After(remembered) {
		return now.Add(-*f.Since)
	}
	return remembered
}

const (
	notAnswered = "does not answer"
	notTold     = "was not told, and may go by what it remembers"
)

// warnOf writes a line for each replica that is not OK, with what it did not do.
func warnOf(stderr io.Writer, replicas []client.Replica, not string) {
	for _, r := range replicas {
		if !r.OK {
			_, _ = fmt.Fprintf(stderr, "rls: replica %s %s: %s\n", terminal.Visible(r.Address), not, terminal.Visible(r.Error))
		}
	}
}

// warnOfAnswer writes of whom an answer is not: of replicas that do not answer, or of the others, if one of
// several was asked alone.
func warnOfAnswer(stderr io.Writer, api *client.Client, replicas []client.Replica) {
	if api.Fleet && replicas == nil {
		_, _ = fmt.Fprintln(stderr, "rls: this is of one of several replicas; --fleet asks all")
	}
	warnOf(stderr, replicas, notAnswered)
}

// answeredOf tells how many replicas have answered, between two texts: 2 of 2 replicas. It is "" of one process.
func answeredOf(before string, replicas []client.Replica, after string) string {
	if len(replicas) == 0 {
		return ""
	}
	answered := 0
	for _, r := range replicas {
		if r.OK {
			answered++
		}
	}
	return fmt.Sprintf("%s%d of %d replicas%s", before, answered, len(replicas), after)
}

// onReplica names the replica of a row at its end; "" without one.
func onReplica(address string) string {
	if address == "" {
		return ""
	}
	return "  [" + address + "]"
}
