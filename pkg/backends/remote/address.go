// Package remote has the parts that stores on servers share: it reads the addresses of servers,
// dials them, and bounds their answers. Settings read addresses with it, too, and so refuse exactly the addresses
// that a store would refuse.
package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HostPort returns text as a host:port that can be dialled. A text without a
// port gets defaultPort; if that is "", it is an error.
func HostPort(text, defaultPort string) (string, error) {
	text = strings.TrimSpace(text)
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), defaultPort
		if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
			port = "" // too many colons
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", fmt.Errorf("%q is not a host:port", text)
	}
	return net.JoinHostPort(host, port), nil
}

// Redis is one Redis server or sentinel.
type Redis struct {
	Addr           string // host:port
	User, Password string
	DB             int
	TLS            bool
}

// ParseRedis reads a host:port, or a URL redis://user:password@host:port/database
// (rediss:// for TLS). Its errors hold no password.
func ParseRedis(text, defaultPort string) (Redis, error) {
	text = strings.TrimSpace(text)
	scheme, _, isURL := strings.Cut(text, "://")
	if !isURL {
		if strings.Contains(text, "@") {
			return Redis{}, errors.New("only a URL can have a password: redis://user:password@host:port")
		}
		if strings.Contains(text, ",") {
			return Redis{}, fmt.Errorf("%q is a list, not one host:port", text)
		}
		addr, err := HostPort(text, defaultPort)
		return Redis{Addr: addr}, err
	}
	u, err := url.Parse(text)
	if err != nil || scheme != "redis" && scheme != "rediss" {
		return Redis{}, errors.New("a URL must look like redis://user:password@host:port/database, or rediss:// for TLS")
	}
	addr, err := HostPort(u.Host, defaultPort)
	if err != nil {
		return Redis{}, err
	}
	db, err := strconv.Atoi(cmp.Or(strings.Trim(u.Path, "/"), u.Query().Get("db"), "0"))
	if err != nil || db < 0 {
		return Redis{}, errors.New("the path of a URL must be the number of a database")
	}
	password, _ := u.User.Password()
	return Redis{
		Addr: addr, User: u.User.Username(), Password: cmp.Or(password, u.Query().Get("password")),
		DB: db, TLS: scheme == "rediss",
	}, nil
}

// OneLogin reports whether the servers of a list, as ParseRedis reads them, have one user and
// password at most. The others are then used with these.
func OneLogin(list []string) bool {
	logins := map[Redis]bool{}
	for _, text := range list {
		if r, err := ParseRedis(text, "6379"); err == nil && r.User+r.Password != "" {
			logins[Redis{User: r.User, Password: r.Password}] = true
		}
	}
	return len(logins) <= 1
}

// IsTCP reports whether text names servers reached by TCP, not the path of a socket.
func IsTCP(text string) bool {
	named := func(server string) bool {
		_, err := HostPort(server, "")
		return err == nil
	}
	return strings.Contains(text, "://") || !strings.Contains(text, "/") && slices.ContainsFunc(strings.Split(text, ","), named)
}

// A Dialer opens connections to servers, in plain text or under TLS.
type Dialer struct {
	net.Dialer // its Timeout bounds the time for the network
	// TLS returns the client's configuration for a new connection, whose ServerName defaults to the
	// host; nil is plain text.
	TLS       func() *tls.Config
	Handshake time.Duration // the longest time for the handshake of TLS, > 0
}

// Connect returns a connection to addr, and the connection of the network below it: the same in
// plain text.
func (d *Dialer) Connect(ctx context.Context, network, addr string) (c, below net.Conn, err error) {
	below, err = d.DialContext(ctx, network, addr)
	if err != nil || d.TLS == nil {
		return below, below, err
	}
	config := d.TLS()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(addr) // "" for a Unix socket
	}
	ctx, cancel := context.WithTimeout(ctx, d.Handshake)
	defer cancel()
	secure := tls.Client(below, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = below.Close()
		advice := "" // Redis does not answer a client that speaks TLS to a plain port
		var record tls.RecordHeaderError
		if errors.As(err, &record) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			advice = " (does the server speak TLS on this port? else use no TLS)"
		}
		return nil, nil, fmt.Errorf("TLS handshake with %s: %w%s", addr, err, advice)
	}
	return secure, below, nil
}
