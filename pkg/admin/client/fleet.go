package client

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"example.org/rls/pkg/replicas"
	"example.org/rls/pkg/top"
)

// Fleet asks the admin APIs of several processes.
type Fleet struct {
	names   []string
	open    func(addr, name string) (*Client, error)
	clients map[string]*Client // by address
}

// NewFleet returns a Fleet for names, HOST:PORT or unix:PATH. A name with several addresses
// stands for all of them. open returns a client for an address of a name; its errors for
// the names themselves are returned.
func NewFleet(names []string, open func(addr, name string) (*Client, error)) (*Fleet, error) {
	f := &Fleet{names, open, map[string]*Client{}}
	for _, name := range names {
		if _, err := f.client(name, name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// client returns the client for an address of name, and opens it at the first call.
func (f *Fleet) client(addr, name string) (*Client, error) {
	if c := f.clients[addr]; c != nil {
		return c, nil
	}
	c, err := f.open(addr, name)
	if err == nil {
		f.clients[addr] = c
	}
	return c, err
}

// expanded returns the addresses, with the port, of a HOST:PORT. It returns the name
// unchanged if the host is localhost or cannot be resolved, and if the name is a Unix socket.
func expanded(ctx context.Context, name string) []string {
	host, port, err := net.SplitHostPort(name)
	if err != nil || strings.HasPrefix(name, "unix:") || host == "localhost" {
		return []string{name}
	}
	addrs, err := replicas.Find(ctx, net.DefaultResolver.LookupNetIP, host)
	if err != nil {
		return []string{name} // the connection will say why
	}
	var all []string
	for _, a := range addrs {
		all = append(all, net.JoinHostPort(a.String(), port))
	}
	return all
}

// TopPath is the path of a table with [top.MaxRows] rows.
func TopPath(by, rule string) string {
	return "/v1/top?" + url.Values{"by": {by}, "rule": {rule}, "n": {strconv.Itoa(top.MaxRows)}}.Encode()
}

// Top asks all processes at once and returns the sums of their tables, the highest rows
// first. The error joins the errors of the processes that did not answer; if none
// answered, Rows is nil.
func (f *Fleet) Top(ctx context.Context, by, rule string) (top.Table, error) {
	var clients []*Client
	for _, name := range f.names {
		for _, addr := range expanded(ctx, name) {
			c, err := f.client(addr, name)
			if err != nil {
				return top.Table{}, err
			}
			if !slices.Contains(clients, c) {
				clients = append(clients, c)
			}
		}
	}
	answers, errs := make([]top.Table, len(clients)), make([]error, len(clients))
	path := TopPath(by, rule)
	var asking sync.WaitGroup
	for i, c := range clients {
		asking.Go(func() { errs[i] = c.Ask(ctx, path, nil, &answers[i]) })
	}
	asking.Wait()
	var tables []top.Table
	for i, err := range errs {
		if err == nil {
			tables = append(tables, answers[i])
		}
	}
	if len(tables) == 0 {
		return top.Table{}, errors.Join(errs...)
	}
	return top.Sum(tables), errors.Join(errs...)
}
