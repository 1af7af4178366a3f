package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

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
		return nil, nil, handshakeError(addr, err)
	}
	return secure, below, nil
}

// handshakeError is the error of a TLS handshake with addr. Redis does not
// answer a client that speaks TLS to a plain port.
func handshakeError(addr string, err error) error {
	var record tls.RecordHeaderError
	if errors.As(err, &record) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("TLS handshake with %s: %w (does the server speak TLS on this port? else use no TLS)", addr, err)
	}
	return fmt.Errorf("TLS handshake with %s: %w", addr, err)
}
