package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/settings"
)

const explainHelp = `With the settings of serve, the keys are those in the store that serve counts in.

Exit codes:
  0  the request is explained, also if nothing limits it
  1  the admin API refused the request or could not be reached
  2  a flag or a setting is wrong, the rules have errors, or a file cannot be read

Examples:
  rls explain config --domain quickstart --descriptor generic_key=hello
  rls explain --addr localhost:6071 --domain quickstart --descriptor generic_key=hello
  BACKEND_TYPE=redis rls explain shop.yaml --domain shop --descriptor plan=free,user=ann --format json`

type explainCmd struct {
	Path string `arg:"" optional:"" help:"Folder with rules, or a file. Of a folder every file counts, also of its subfolders."`
	RequestFlags
	Hits       uint32 `default:"1" help:"Cost of the request."`
	cli.Output `set:"output=explanation"`

	Addr string `placeholder:"ADDRESS" help:"Ask the admin API of a process in place of files: HOST:PORT, or unix:PATH. It also has the state of each counter."`
	Access

	ruleFlags
	Keys     settings.Keys     `embed:"" group:"Settings of serve"`
	Kuadrant settings.Kuadrant `embed:"" group:"Settings of serve" prefix:"kuadrant-rls-" envprefix:"KUADRANT_RLS_"`
}

func (c *explainCmd) Run(ctx context.Context, k *kong.Kong, decoder *settings.Decoder) error {
	request, err := c.request()
	if err != nil {
		return err
	}
	var doc explain.Document
	switch {
	case c.Path == "" && c.Addr == "":
		return cli.UsageError("explain: name a folder or a file with rules, or the --addr of a running process")
	case c.Path != "" && c.Addr != "":
		return cli.UsageError("explain: --addr asks a running process: want no folder or file beside it")
	case c.Addr != "":
		if err = c.fillDomain(ctx, c.Addr, &request.Domain); err == nil {
			err = c.post(ctx, c.Addr, "/v1/explain", request, &doc)
		}
	default:
		if doc, err = c.explain(ctx, decoder, request); err != nil {
			return cli.UsageError("%w", err)
		}
	}
	if err != nil {
		return err
	}
	return c.Write(k.Stdout, &doc, doc.Text)
}

// request is the request that the flags describe. Its errors are usage errors.
func (c *explainCmd) request() (*operate.Question, error) {
	request, err := c.Request()
	if err != nil {
		return nil, err
	}
	request.Hits = c.Hits
	for i := range request.Descriptors {
		if c.Hits == 0 { // in the request 0 means 1
			request.Descriptors[i].Hits = new(uint64)
		}
	}
	return request, nil
}

// explain has a service with an empty store in this process explain the request.
func (c *explainCmd) explain(ctx context.Context, decoder *settings.Decoder, request *operate.Question) (doc explain.Document, err error) {
	store, err := memory.New(memory.Options{MaxKeys: 1})
	if err != nil {
		return doc, err
	}
	defer func() { _ = store.Close() }()
	limits, err := c.service(decoder, store)
	if err != nil {
		return doc, err
	}
	if request.Domain == "" {
		if request.Domain, err = OnlyDomain(domainNames(limits.Tree())); err != nil {
			return doc, err
		}
	}
	return limits.Inspect(ctx, request, operate.Trace)
}

// service returns the operator of the service that serve has with the same settings and rules.
func (c *explainCmd) service(decoder *settings.Decoder, store backends.Store) (*operate.Operator, error) {
	options, err := c.ruleOptions(decoder)
	if err = errors.Join(err, decoder.CheckPart(&c.Keys)); err != nil {
		return nil, err
	}
	tree, err := c.load(c.Path, options)
	if err != nil {
		return nil, err
	}
	s := &settings.Settings{Backend: settings.Backend{Kind: c.Settings.Kind, Keys: c.Keys}, Kuadrant: c.Kuadrant}
	values, err := s.Backend.ValueHash()
	if err != nil {
		return nil, err
	}
	limits := service.New(s.Service(store, values, nil))
	limits.SetTree(tree)
	return operate.New(limits, s.Backend.StoredKey), nil
}

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
