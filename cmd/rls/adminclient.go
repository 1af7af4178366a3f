package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// adminFlags are the flags of a command that asks the admin API of one process.
type adminFlags struct {
	Addr string `default:"localhost:6071" help:"Where the admin API listens: HOST:PORT, or unix:PATH."`

	adminAccess
}

// adminAccess are the flags of a command that asks admin APIs, without the address.
type adminAccess struct {
	TokenFile string `placeholder:"FILE" help:"File with a token of the admin API. Without it $RLS_TOKEN_FILE names the file, or $RLS_TOKEN is the token."`

	tlsFlags
}

// adminClient asks the admin API of one process.
type adminClient struct {
	addr  string
	base  string // the URL without a path
	token string
	http  *http.Client
}

// open returns a client for the flags' address. Its errors are usage errors.
func (f *adminFlags) open() (*adminClient, error) { return f.adminAccess.open(f.Addr) }

// open returns a client for an address, HOST:PORT or unix:PATH. It connects with the
// first request. Its errors are usage errors.
func (f *adminAccess) open(addr string) (*adminClient, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	network, address, err := endpoint(addr)
	if err != nil {
		return nil, err
	}
	c := &adminClient{addr: addr, base: baseURL(config, address), token: token}
	transport := &http.Transport{TLSClientConfig: config}
	if network == "unix" {
		c.base = baseURL(config, "localhost")
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}
	}
	c.http = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func baseURL(config *tls.Config, host string) string {
	u := url.URL{Scheme: "http", Host: host}
	if config != nil {
		u.Scheme = "https"
	}
	return u.String()
}

// token is the token that the flags or the environment give, or "". Its errors are
// usage errors.
func (f *adminAccess) token() (string, error) {
	path, source := f.TokenFile, "--token-file"
	if path == "" {
		path, source = os.Getenv("RLS_TOKEN_FILE"), "RLS_TOKEN_FILE"
	}
	text := os.Getenv("RLS_TOKEN")
	if path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", usageError("%s: %w", source, err)
		}
		text, source = string(content), source+" "+path
	} else {
		source = "RLS_TOKEN"
	}
	words := strings.Fields(text)
	switch {
	case len(words) > 1:
		return "", usageError("%s has %d words: want a token alone, without its name and role", source, len(words))
	case len(words) == 1:
		return words[0], nil
	case path != "":
		return "", usageError("%s has no token", source)
	}
	return "", nil
}

// get reads the document of a path into to.
func (c *adminClient) get(ctx context.Context, path string, to any) error {
	return c.ask(ctx, http.MethodGet, path, nil, to)
}

// post sends a document to a path and reads the answer into to.
func (c *adminClient) post(ctx context.Context, path string, document, to any) error {
	return c.ask(ctx, http.MethodPost, path, document, to)
}

func (c *adminClient) ask(ctx context.Context, method, path string, document, to any) error {
	response, err := c.send(ctx, method, path, "application/json", document)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(to); err != nil {
		return c.failed(fmt.Errorf("read the answer: %w", err))
	}
	return nil
}

// stream sends a document to a path, and calls each with the data of every
// server-sent event of the answer. It ends when the answer ends or each fails.
func (c *adminClient) stream(ctx context.Context, path string, document any, each func(data []byte) error) error {
	response, err := c.send(ctx, http.MethodPost, path, "text/event-stream", document)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	failed := false
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if lines.Text() == "event: error" {
			failed = true
			continue
		}
		data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		switch {
		case !isData:
		case failed:
			return c.failed(problemOf(data))
		default:
			if err := each(data); err != nil {
				return c.failed(err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return c.failed(err)
	}
	return nil
}

// send sends a request. The answer is a good one.
func (c *adminClient) send(ctx context.Context, method, path, accept string, document any) (*http.Response, error) {
	var body io.Reader
	if document != nil {
		text, err := json.Marshal(document)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	if document != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		var asked *url.Error // whose text repeats the URL
		if errors.As(err, &asked) {
			err = asked.Err
		}
		return nil, c.failed(err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	const most = 64 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, most))
	if err := problemOf(text); err != nil {
		if response.StatusCode == http.StatusUnauthorized {
			err = fmt.Errorf("%w; --token-file, RLS_TOKEN_FILE or RLS_TOKEN gives it", err)
		}
		return nil, c.failed(err)
	}
	hint := "is this an admin API?"
	if bytes.Contains(text, []byte("HTTPS server")) { // as net/http answers without TLS
		hint = "the server wants TLS (--tls)"
	}
	return nil, c.failed(fmt.Errorf("the answer is %s: %s", response.Status, hint))
}

func (c *adminClient) failed(err error) error { return fmt.Errorf("admin API at %s: %w", c.addr, err) }

// problemOf reads the document of an error. It returns nil if the text is no such
// document.
func problemOf(text []byte) error {
	var problem struct{ Code, Message string }
	if json.Unmarshal(text, &problem) != nil || problem.Code == "" {
		return nil
	}
	return fmt.Errorf("%s (%s)", problem.Message, problem.Code)
}

// requestFlags are the flags of a command that asks about one request.
type requestFlags struct {
	Domain     string   `required:"" placeholder:"NAME" help:"Domain of the request."`
	Descriptor []string `sep:"none" placeholder:"KEY=VALUE,..." help:"Entries of a descriptor, separated by commas, or in JSON where a comma is part of a value: '{\"KEY\": \"VALUE\"}' or '[{\"key\": \"KEY\", \"value\": \"VALUE\"}]'. Repeat the flag for several descriptors."`
}

// adminRequest is the body of the routes that ask about a request, or change its
// counters.
type adminRequest struct {
	Domain      string            `json:"domain"`
	Descriptors []adminDescriptor `json:"descriptors,omitempty"`
	Hits        int64             `json:"hits,omitempty"` // of a grant
	HitsAddend  uint32            `json:"hits_addend,omitempty"`
	Rule        string            `json:"rule,omitempty"`
	AllMatching bool              `json:"all_matching,omitempty"`
	DryRun      bool              `json:"dry_run,omitempty"`
	Reason      string            `json:"reason,omitempty"`
}

type adminDescriptor struct {
	Entries []descriptors.Entry `json:"entries"`
	Hits    *uint64             `json:"hits_addend,omitempty"`
}

// newAdminRequest returns the body for a request.
func newAdminRequest(a *service.Request) adminRequest {
	r := adminRequest{Domain: a.Domain, HitsAddend: a.Hits}
	for _, d := range a.Descriptors {
		r.Descriptors = append(r.Descriptors, adminDescriptor{Entries: d.Entries, Hits: d.Hits})
	}
	return r
}

// request is the request that the flags describe. Its errors are usage errors.
func (f *requestFlags) request() (adminRequest, error) {
	a := service.Request{Domain: f.Domain}
	for _, text := range f.Descriptor {
		entries, err := ask.ParseDescriptor(text)
		if err != nil {
			return adminRequest{}, usageError("%w", err)
		}
		a.Descriptors = append(a.Descriptors, service.Descriptor{Entries: entries})
	}
	return newAdminRequest(&a), nil
}
