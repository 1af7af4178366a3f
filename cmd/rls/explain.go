package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/settings"
)

type explainCmd struct {
	Path       string   `arg:"" optional:"" help:"Folder with rules (every file in it and in its subfolders), or a file."`
	Domain     string   `required:"" help:"Domain of the request."`
	Descriptor []string `required:"" sep:"none" placeholder:"KEY=VALUE,..." help:"Entries of a descriptor, separated by commas, or in JSON where a comma is part of a value: '{\"KEY\": \"VALUE\"}' or '[{\"key\": \"KEY\", \"value\": \"VALUE\"}]'. Repeat the flag for several descriptors."`
	Hits       uint32   `default:"1" help:"Cost of the request."`
	Format     string   `default:"text" enum:"text,json" help:"How the explanation is written: text or json."`

	Addr    string        `placeholder:"ADDRESS" help:"Ask the admin API of a running process in place of files, also for the state of each counter: HOST:PORT, or unix:PATH."`
	Timeout time.Duration `default:"10s" min:"1ms" help:"Longest wait for the answer of the process."`
	adminAccess

	Settings settings.RuleSettings `embed:"" group:"Settings of serve"`
	Keys     settings.Keys         `embed:"" group:"Settings of serve"`
}

// Help implements [kong.HelpProvider].
func (*explainCmd) Help() string {
	return `With the settings of serve, the keys are those in the store that serve counts in.

Exit codes:
  0  the request is explained, also if nothing limits it
  1  the admin API refused the request or could not be reached
  2  a flag or a setting is wrong, the rules have errors, or a file cannot be read

Examples:
  rls explain config --domain quickstart --descriptor generic_key=hello
  rls explain --addr localhost:6071 --domain quickstart --descriptor generic_key=hello
  BACKEND_TYPE=redis rls explain shop.yaml --domain shop --descriptor plan=free,user=ann --format json`
}

func (c *explainCmd) Run(k *kong.Kong, decoder *settings.Decoder) error {
	request, err := c.request()
	if err != nil {
		return err
	}
	switch {
	case c.Path == "" && c.Addr == "":
		return usageError("explain: name a folder or a file with rules, or the --addr of a running process")
	case c.Path != "" && c.Addr != "":
		return usageError("explain: --addr asks a running process: want no folder or file beside it")
	case c.Addr != "":
		doc, err := c.askProcess(request)
		if err != nil {
			return err
		}
		return writeExplanation(k.Stdout, c.Format, &doc)
	}
	if err := errors.Join(decoder.CheckRules(&c.Settings), decoder.CheckKeys(&c.Keys)); err != nil {
		return usageError("%w", err)
	}
	tree, err := c.rules()
	if err != nil {
		return err
	}
	doc, err := c.explain(tree, request)
	if err != nil {
		return err
	}
	return writeExplanation(k.Stdout, c.Format, &doc)
}

// request is the request that the flags describe. Its errors are usage errors.
func (c *explainCmd) request() (*service.Request, error) {
	a := &service.Request{Domain: c.Domain, Hits: c.Hits}
	for _, text := range c.Descriptor {
		entries, err := ask.ParseDescriptor(text)
		if err != nil {
			return nil, usageError("%w", err)
		}
		d := service.Descriptor{Entries: entries}
		if c.Hits == 0 { // in the request 0 means 1
			d.Hits = new(uint64)
		}
		a.Descriptors = append(a.Descriptors, d)
	}
	return a, nil
}

// askProcess has a running process explain the request.
func (c *explainCmd) askProcess(request *service.Request) (doc explain.Document, err error) {
	client, err := c.open(c.Addr)
	if err != nil {
		return doc, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	err = client.post(ctx, "/v1/explain", newAdminRequest(request), &doc)
	return doc, err
}

// rules loads the rules of the path. Its errors are usage errors.
func (c *explainCmd) rules() (*descriptors.Tree, error) {
	tree, err := loadRules(c.Settings, c.Path)
	if err != nil {
		return nil, usageError("%w", err)
	}
	return tree, nil
}

// explain has a service with these rules explain the request. The service is made of
// the same settings as that of serve; only its store is in this process and empty.
func (c *explainCmd) explain(tree *descriptors.Tree, request *service.Request) (explain.Document, error) {
	s := &settings.Settings{Backend: settings.Backend{Kind: c.Settings.Kind, Keys: c.Keys}}
	secret, err := keySecret(&s.Backend)
	if err != nil {
		return explain.Document{}, usageError("%w", err)
	}
	store, err := memory.New(memory.Options{MaxKeys: 1})
	if err != nil {
		return explain.Document{}, err
	}
	defer func() { _ = store.Close() }()
	limits, err := newService(s, store, nil, secret, nil)
	if err != nil {
		return explain.Document{}, err
	}
	limits.SetTree(tree)
	in, err := limits.Inspect(context.Background(), request, service.Trace)
	if err != nil {
		return explain.Document{}, usageError("%w", err)
	}
	return explain.New(in), nil
}

// writeExplanation writes the document as text or as JSON.
func writeExplanation(w io.Writer, format string, doc *explain.Document) error {
	if format == "text" {
		return doc.Text(w)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(doc)
}
