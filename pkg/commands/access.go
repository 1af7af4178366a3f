package commands

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/cli"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/status"
)

// Access are the flags of a command that asks admin APIs, without the address.
type Access struct {
	Timeout   time.Duration `default:"10s" min:"1ms" help:"Longest wait for the answer."`
	TokenFile string        `placeholder:"FILE" help:"File with a token of the admin API. Without it $RLS_TOKEN_FILE names the file, or $RLS_TOKEN is the token."`

	cli.TLSFlags
}

// addrFlag is the address of an admin API.
type addrFlag struct {
	Addr string `default:"${addr}" help:"Where the admin API listens: HOST:PORT, or unix:PATH. $RLS_ADDR is the default, or localhost:6071."`
}

// adminAsk are the flags of a command that asks the admin API of one process.
type adminAsk struct {
	addrFlag
	Access
	cli.Output `set:"output=answer"`
}

// client returns a client for an address, HOST:PORT or unix:PATH. It connects with the
// first request. Its errors are usage errors.
func (f *Access) client(addr string) (*client.Client, error) {
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
func (f *Access) token() (string, error) {
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

// fillDomain sets a domain that is empty to the only one of the rules in force at an
// address. Without exactly one it returns a usage error.
func (f *Access) fillDomain(ctx context.Context, addr string, domain *string) error {
	if *domain != "" {
		return nil
	}
	var names []string
	ask := func(n, offset int) (total int, err error) {
		var page status.Listing
		err = f.post(ctx, addr, admin.Query{N: n, Offset: offset}.To("/v1/rules"), nil, &page)
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
	*domain, err = OnlyDomain(slices.Compact(names))
	return err
}

// post sends a body, unless it is nil, to a path of the admin API at an address and reads the answer into to.
func (f *Access) post(ctx context.Context, addr, path string, body any, to any) error {
	api, err := f.client(addr)
	if err != nil {
		return err
	}
	return f.ask(ctx, api, path, body, to)
}

// ask does what post does with a client.
func (f *Access) ask(ctx context.Context, api *client.Client, path string, body any, to any) error {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	return api.Ask(ctx, path, body, to)
}
