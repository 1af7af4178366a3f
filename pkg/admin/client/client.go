// Package client asks the admin API of running processes.
package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// Options say where an admin API listens.
type Options struct {
	Name             string      // in errors
	Network, Address string      // as [net.Dial] takes them
	Token            string      // "" sends none
	TLS              *tls.Config // nil connects without TLS
}

// FleetHeader stands in the answers of a process that is one of several replicas.
const FleetHeader = "Rls-Fleet"

// Client asks the admin API of one process.
type Client struct {
	Options
	Fleet bool // the process that answered the last Ask is one of several replicas

	base string // the URL without a path
	http *http.Client
}

// New returns a client, which connects with the first request.
func New(o Options) *Client {
	base := url.URL{Scheme: "http", Host: o.Address}
	if o.TLS != nil {
		base.Scheme = "https"
	}
	if o.Network == "unix" {
		base.Host = "localhost"
	}
	return &Client{Options: o, base: base.String(), http: &http.Client{
		Transport: &http.Transport{TLSClientConfig: o.TLS, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, o.Network, o.Address)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ask reads the document of a path into to: with GET, or unless body is nil
// by POST of its JSON.
func (c *Client) Ask(ctx context.Context, path string, body any, to any) error {
	response, err := c.send(ctx, path, "application/json", body)
	if err != nil {
		return c.Failed(err)
	}
	defer func() { _ = response.Body.Close() }()
	c.Fleet = response.Header.Get(FleetHeader) != ""
	if err := json.NewDecoder(response.Body).Decode(to); err != nil {
		return c.Failed(fmt.Errorf("read the answer: %w", err))
	}
	return nil
}

// Fetch returns the document that Ask reads, of at most so many bytes, and the header of the
// answer. Its errors do not name the address.
func (c *Client) Fetch(ctx context.Context, path string, body any, atMost int64) ([]byte, http.Header, error) {
	response, err := c.send(ctx, path, "application/json", body)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, atMost+1))
	if err == nil && int64(len(text)) > atMost {
		err = fmt.Errorf("the answer has more than %d bytes", atMost)
	}
	return text, response.Header, err
}

// Stream asks as [Client.Ask] does, and calls each with the document of every server-sent
// event of the answer. It ends when the answer ends or each fails. Unless it is nil, opened is called
// once before, when the answer begins; its error is returned as it is.
func Stream[D any](ctx context.Context, c *Client, path string, body any, opened func() error, each func(*D) error) error {
	response, err := c.send(ctx, path, "text/event-stream", body)
	if err != nil {
		return c.Failed(err)
	}
	defer func() { _ = response.Body.Close() }()
	if opened != nil {
		if err := opened(); err != nil {
			return err
		}
	}
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
			return c.Failed(problemOf(data))
		default:
			document := new(D)
			err := json.Unmarshal(data, document)
			if err == nil {
				err = each(document)
			}
			if err != nil {
				return c.Failed(err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return c.Failed(err)
	}
	return nil
}

// send sends a request. It returns only responses with the status 200, whose body the
// caller closes.
func (c *Client) send(ctx context.Context, path, accept string, body any) (*http.Response, error) {
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		method, content = http.MethodPost, bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		var asked *url.Error // whose text repeats the URL
		if errors.As(err, &asked) {
			err = asked.Err
		}
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	const maxRead = 64 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRead))
	if err := problemOf(text); err != nil {
		return nil, err
	}
	hint := "is this an admin API?"
	if bytes.Contains(text, []byte("HTTPS server")) { // as net/http answers without TLS
		hint = "the server wants TLS (--tls)"
	}
	return nil, fmt.Errorf("the answer is %s: %s", response.Status, hint)
}

// Failed is err behind the address of the API.
func (c *Client) Failed(err error) error {
	if problem := (*Problem)(nil); errors.As(err, &problem) && problem.Code == "UNAUTHENTICATED" {
		err = fmt.Errorf("%w; --token-file, RLS_TOKEN_FILE or RLS_TOKEN gives it", err)
	}
	switch refused := errors.Is(err, syscall.ECONNREFUSED); {
	case c.Network == "unix" && (refused || errors.Is(err, fs.ErrNotExist)):
		err = fmt.Errorf("%w: no process has this socket; ADMIN_UDS of rls serve names it", err)
	case refused:
		err = fmt.Errorf("%w: the API is off, which ADMIN_TOKEN_FILE turns on, or it is on a socket, which ADMIN_UDS names (--addr unix:PATH)", err)
	}
	return fmt.Errorf("admin API at %s: %w", c.Name, err)
}

// Problem is the document of an error.
type Problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Suggestions are texts that the request may have meant.
	Suggestions []string `json:"suggestions,omitempty"`
	// Bound is what the caller's token is bound to, as the file of tokens has it, if the token may not ask
	// this because of it.
	Bound string `json:"bound,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string { return fmt.Sprintf("%s (%s)", p.Message, p.Code) }

// problemOf reads the document of an error. It returns nil if the text is no such
// document.
func problemOf(text []byte) error {
	problem := new(Problem)
	if json.Unmarshal(text, problem) != nil || problem.Code == "" {
		return nil
	}
	return problem
}

// Replica is a replica that was asked, or told.
type Replica struct {
	// Address is as ADMIN_FLEET has it; IP:port for one of several addresses of a name.
	Address string `json:"address"`
	OK      bool   `json:"ok"`
	Error   string `json:"error"` // why it is not OK
	Name    string `json:"name"`  // of its host
	// Hash is that of the rules in force; only in the status and the rules.
	Hash string `json:"hash,omitempty"`
}

// Answer is the document of one replica.
type Answer[D any] struct {
	*Replica
	Document D
}

// Rows are the rows of all documents.
func Rows[D, R any](all []Answer[D], of func(*D) []R) (rows []R) {
	for i := range all {
		rows = append(rows, of(&all[i].Document)...)
	}
	return rows
}

// Join has one row for all rows with the same key: the first of them, to which add adds the others.
func Join[R any, K comparable](rows []R, key func(*R) K, add func(one, more *R)) []R {
	joined, at := []R{}, map[K]int{}
	for i := range rows {
		of := key(&rows[i])
		if place, known := at[of]; known {
			add(&joined[place], &rows[i])
			continue
		}
		at[of] = len(joined)
		joined = append(joined, rows[i])
	}
	return joined
}
