package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"example.org/rls/internal/cli"
	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/status"
	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// The last exit codes in the help of a command that asks a process, and the head of its examples.
const (
	exitRefused = "\n  1  the admin API refused, or could not be reached" + exitWrong
	exitWrong   = "\n  2  a flag is wrong, or a file cannot be read\n\nExamples:"
)

// adminAccess are the flags of a command that asks admin APIs, without the address.
type adminAccess struct {
	Timeout   time.Duration `default:"10s" min:"1ms" help:"Longest wait for the answer."`
	TokenFile string        `placeholder:"FILE" help:"File with a token of the admin API. Without it $RLS_TOKEN_FILE names the file, or $RLS_TOKEN is the token."`

	cli.TLSFlags
}

// adminAsk are the flags of a command that asks the admin API of one process.
type adminAsk struct {
	Addr string `default:"localhost:6071" help:"Where the admin API listens: HOST:PORT, or unix:PATH."`
	adminAccess
	cli.Output `set:"output=answer"`
}

// adminCall are the flags of a command that asks the admin API of one process about a request.
type adminCall struct {
	Domain     string   `placeholder:"NAME" help:"Domain of the request; not needed if the rules have one domain."`
	Descriptor []string `sep:"none" placeholder:"KEY=VALUE,..." help:"${descriptor}"`
	poolFlag
	requestLimit
	adminAsk
}

// poolFlag names a pool in place of descriptors.
type poolFlag struct {
	Pool *string `placeholder:"NAME" help:"Pool of the domain, in place of --descriptor."`
}

// name is the name of the pool, "" without the flag. Its errors are usage errors.
func (f *poolFlag) name(descriptors []string, limit *string) (string, error) {
	switch {
	case f.Pool == nil && len(descriptors) == 0:
		return "", cli.UsageError("name a --descriptor, such as --descriptor plan=free,user=ann, or a --pool")
	case f.Pool == nil:
		return "", nil
	case *f.Pool == "":
		return "", cli.UsageError("--pool is empty: want the name of a pool of the rules")
	case len(descriptors) > 0 || limit != nil:
		return "", cli.UsageError("--pool is in place of a request: want no --descriptor and no --limit beside it")
	}
	return *f.Pool, nil
}

// requestLimit is the flag of the limit that a request brings along.
type requestLimit struct {
	Limit *string `placeholder:"N/UNIT" help:"Limit in place of those of the rules, such as 100/hour or 100/2*hour, as requests bring it along. Without it the limit counts that the last request brought, if it brought one."`
}

// client returns a client for an address, HOST:PORT or unix:PATH. It connects with the
// first request. Its errors are usage errors.
func (f *adminAccess) client(addr string) (*client.Client, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	network, address, err := cli.Endpoint(addr)
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{Name: addr, Network: network, Address: address, Token: token, TLS: config}), nil
}

// token is the token that the flags or the environment give, or "". Its errors are usage errors.
func (f *adminAccess) token() (string, error) {
	path, flag := f.TokenFile, "--token-file"
	if path == "" {
		path, flag = os.Getenv("RLS_TOKEN_FILE"), "RLS_TOKEN_FILE"
	}
	text, source := os.Getenv("RLS_TOKEN"), "RLS_TOKEN"
	if path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", cli.UsageError("%s: %w", flag, err)
		}
		text, source = string(content), flag+" "+path
	}
	words := strings.Fields(text)
	switch {
	case len(words) > 1:
		return "", cli.UsageError("%s has %d words: want a token alone, without its name and role", source, len(words))
	case len(words) == 0 && path != "":
		return "", cli.UsageError("%s has no token", source)
	}
	return strings.Join(words, ""), nil
}

// asked returns the descriptors of the flags, at least one, or the name of their pool, and sets
// Domain if it is empty. Wrong flags are usage errors.
func (c *adminCall) asked(ctx context.Context) (descriptors []*pb.Descriptor, pool string, err error) {
	pool, err = c.name(c.Descriptor, c.Limit)
	if err != nil {
		return nil, "", err
	}
	all, err := parseDescriptors(c.Descriptor, c.Limit)
	if err == nil {
		err = c.fillDomain(ctx, c.Addr, &c.Domain)
	}
	return messages(all), pool, err
}

// fillDomain sets a domain that is empty to the only one of the rules in force at an
// address. Without exactly one it returns a usage error.
func (f *adminAccess) fillDomain(ctx context.Context, addr string, domain *string) error {
	if *domain != "" {
		return nil
	}
	var names []string
	ask := func(n, offset int) (total int, err error) {
		var page status.Listing
		path := fmt.Sprintf("/v1/rules?n=%d&offset=%d", n, offset)
		err = f.post(ctx, addr, path, nil, &page)
		for _, r := range page.Rules {
			names = append(names, r.Domain)
		}
		return page.Total, err
	}
	const first = 100
	total, err := ask(first, 0)
	if err == nil && total > first { // the rules are in the order of their domains
		_, err = ask(1, total-1)
	}
	if err != nil {
		return err
	}
	*domain, err = onlyDomain(slices.Compact(names))
	return err
}

// onlyDomain returns the only one of the domains of rules. Its errors are usage errors.
func onlyDomain(names []string) (string, error) {
	switch len(names) {
	case 0:
		return "", cli.UsageError("name a --domain: the rules have none yet")
	case 1:
		return names[0], nil
	}
	return "", cli.UsageError("name a --domain: the rules have %s", strings.Join(names, ", "))
}

func domainNames(rules *descriptors.Tree) []string {
	var names []string
	for _, d := range rules.Domains() {
		names = append(names, d.Name)
	}
	return names
}

// parseDescriptors reads the texts of --descriptor, and of --limit unless it is nil. Its
// errors are usage errors.
func parseDescriptors(texts []string, limit *string) ([]service.Descriptor, error) {
	var override *service.Override
	if limit != nil {
		requests, unit, multiplier, err := descriptors.ParseLimit(*limit)
		if err != nil {
			return nil, cli.UsageError("--limit: %w", err)
		}
		override = &service.Override{RequestsPerUnit: requests, Unit: unit, Multiplier: multiplier}
	}
	all := make([]service.Descriptor, len(texts))
	for i, text := range texts {
		var err error
		all[i].Limit = override
		if all[i].Entries, err = ask.ParseDescriptor(text); err != nil {
			return nil, cli.UsageError("%w", err)
		}
	}
	return all, nil
}

// messages returns the descriptors as the admin API takes them.
func messages(all []service.Descriptor) []*pb.Descriptor {
	messages := make([]*pb.Descriptor, len(all))
	for i, d := range all {
		messages[i] = &pb.Descriptor{HitsAddend: d.Hits}
		if o := d.Limit; o != nil {
			messages[i].Limit = &pb.Override{RequestsPerUnit: o.RequestsPerUnit, Unit: o.Unit.String(), UnitMultiplier: o.Multiplier}
		}
		for _, e := range d.Entries {
			messages[i].Entries = append(messages[i].Entries, &pb.Entry{Key: e.Key, Value: e.Value})
		}
	}
	return messages
}

// post sends a message to a path of the admin API at an address and reads the answer into to.
func (f *adminAccess) post(ctx context.Context, addr, path string, message proto.Message, to any) error {
	api, err := f.client(addr)
	if err != nil {
		return err
	}
	return f.ask(ctx, api, path, message, to)
}

// ask does what post does with a client.
func (f *adminAccess) ask(ctx context.Context, api *client.Client, path string, message proto.Message, to any) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	return api.Ask(ctx, path, message, to)
}
