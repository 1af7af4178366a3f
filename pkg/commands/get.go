package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors/explain"
)

const getHelp = `The command charges nothing. The process must serve its admin API: docs/admin.md.

Exit codes:
  0  the counters are printed
  1  the request has no counter, or the store cannot tell it, or the admin API refused it
     or could not be reached` + exitWrong + `
  rls get --domain shop --descriptor plan=free,user=ann --token-file ops.token
  rls get --domain shop --descriptor plan=free,user=ann --addr unix:/run/rls/admin.sock --format json`

type getCmd struct{ adminCall }

func (c *getCmd) Run(ctx context.Context, k *kong.Kong) error {
	request, err := c.asked(ctx)
	if err != nil {
		return err
	}
	var doc explain.Document
	if err := c.post(ctx, c.Addr, "/v1/get", request, &doc); err != nil {
		return err
	}
	var unknown error
	for _, d := range doc.Descriptors {
		for _, l := range d.Limits {
			if l.State != nil && l.Error != "" {
				unknown = errors.Join(unknown, fmt.Errorf("the counter of %s is not known: %s", terminal.Visible(l.Rule), l.Error))
			}
		}
	}
	return errors.Join(c.Write(k.Stdout, &doc, doc.Text), unknown)
}
