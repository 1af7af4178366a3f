package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/explain"
)

type getCmd struct {
	requestFlags
	outputFlags
	adminFlags
}

// outputFlags are the flags of commands that ask the admin API once.
type outputFlags struct {
	Timeout time.Duration `default:"10s" min:"1ms" help:"Longest wait for the answer."`
	Format  string        `default:"text" enum:"text,json" help:"How the answer is written: text or json."`
}

// Help implements [kong.HelpProvider].
func (*getCmd) Help() string {
	return `The command charges nothing. The process must serve its admin API: docs/admin.md.

Exit codes:
  0  the counters are printed
  1  the request has no counter, or the store cannot tell it, or the admin API refused it
     or could not be reached
  2  a flag is wrong, or a file cannot be read

Examples:
  rls get --domain shop --descriptor plan=free,user=ann --token-file ops.token
  rls get --domain shop --descriptor plan=free,user=ann --addr unix:/run/rls/admin.sock --format json`
}

func (c *getCmd) Run(k *kong.Kong) error {
	request, client, err := c.prepare(&c.requestFlags)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	var counters admin.Counters
	if err := client.post(ctx, "/v1/get", request, &counters); err != nil {
		return err
	}
	var unknown []error
	for _, d := range counters.Descriptors {
		for _, l := range d.Limits {
			if l.Error != "" {
				unknown = append(unknown, fmt.Errorf("the counter of %s is not known: %s", printable(l.Rule), l.Error))
			}
		}
	}
	return errors.Join(c.print(k, &counters), errors.Join(unknown...))
}

// print writes the counters as text or as JSON.
func (c *getCmd) print(k *kong.Kong, counters *admin.Counters) error {
	if c.Format == "json" {
		return writeDocument(k.Stdout, counters)
	}
	doc := explain.Document{Domain: counters.Domain}
	for _, d := range counters.Descriptors {
		shown := explain.Descriptor{Entries: d.Entries, Hits: 1, Why: d.Why, Limits: d.Limits}
		if len(d.Limits) > 0 {
			shown.Rule = d.Limits[0].Rule
		}
		doc.Descriptors = append(doc.Descriptors, shown)
	}
	return doc.Text(k.Stdout)
}

// prepare returns the request that the flags describe, which has a descriptor, and a
// client of the admin API. Its errors are usage errors.
func (f *adminFlags) prepare(of *requestFlags) (adminRequest, *adminClient, error) {
	request, err := of.request()
	if err != nil {
		return request, nil, err
	}
	if len(request.Descriptors) == 0 {
		return request, nil, usageError("name a --descriptor, such as --descriptor plan=free,user=ann")
	}
	client, err := f.open()
	return request, client, err
}

// writeDocument writes a document on one line.
func writeDocument(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(document)
}
