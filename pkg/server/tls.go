package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"example.org/rls/pkg/settings"
)

// rereadEvery is how often the files of certificates are looked at. Reading
// them is dearer than a notification and cannot be missed.
const rereadEvery = time.Second

// certificates are what the gRPC listener shows and asks for. They follow
// their files; what cannot be used is logged and changes nothing.
type certificates struct {
	files   settings.GRPC
	log     *slog.Logger
	inForce atomic.Pointer[tls.Config]
	judged  pems // the last that were tried
	seen    pems // the last that were read
}

// readCertificates fails when the files cannot be used.
func readCertificates(files settings.GRPC, log *slog.Logger) (*certificates, error) {
	c := &certificates{files: files, log: log, judged: readPEMs(files)}
	config, err := c.judged.config(files)
	if err != nil {
		return nil, err
	}
	c.inForce.Store(config)
	return c, nil
}

// config gives each connection the certificates in force.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.inForce.Load(), nil },
	}
}

// refusals logs why clients are refused, for those who look for it: anyone can
// bring it about.
type refusals struct {
	credentials.TransportCredentials
	log *slog.Logger
}

// ServerHandshake implements [credentials.TransportCredentials].
func (r *refusals) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		r.log.Debug("gRPC: TLS handshake failed", "client", raw.RemoteAddr().String(), "error", err.Error())
	}
	return conn, info, err
}

// Clone implements [credentials.TransportCredentials].
func (r *refusals) Clone() credentials.TransportCredentials {
	return &refusals{r.TransportCredentials.Clone(), r.log}
}

// follow reads the files again until ctx ends.
func (c *certificates) follow(ctx context.Context) {
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.look()
		}
	}
}

// look takes files that are the same as a look before: a certificate and its
// key are seldom written at once.
func (c *certificates) look() {
	next := readPEMs(c.files)
	settled := next == c.seen
	c.seen = next
	if !settled || next == c.judged {
		return
	}
	c.judged = next
	config, err := next.config(c.files)
	if err != nil {
		c.log.Error("gRPC: new certificates refused, the last good ones stay in force", "error", err.Error())
		return
	}
	c.inForce.Store(config)
	c.log.Info("gRPC: certificates read again")
}

// pems is what the files hold, or why one of them cannot be read.
type pems struct{ cert, key, clientCA, unreadable string }

func readPEMs(files settings.GRPC) (p pems) {
	for _, f := range []struct {
		into *string
		path string
	}{{&p.cert, files.ServerTLSCert}, {&p.key, files.ServerTLSKey}, {&p.clientCA, files.ClientCA()}} {
		if f.path == "" {
			continue
		}
		content, err := os.ReadFile(f.path)
		if err != nil {
			p.unreadable = err.Error()
			return p
		}
		*f.into = string(content)
	}
	return p
}

// config is TLS 1.2 or later, and with a client CA every client needs a
// certificate from it, and the wanted name in it.
func (p *pems) config(files settings.GRPC) (*tls.Config, error) {
	if p.unreadable != "" {
		return nil, fmt.Errorf("load certificates: %s", p.unreadable)
	}
	cert, err := tls.X509KeyPair([]byte(p.cert), []byte(p.key))
	if err != nil {
		return nil, fmt.Errorf("load server certificate %s with %s: %w", files.ServerTLSCert, files.ServerTLSKey, err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{cert},
		MinVersion:   tls.VersionTLS12,
		// A resumed session would keep what earlier certificates allowed.
		SessionTicketsDisabled: true,
	}
	if file := files.ClientCA(); file != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM([]byte(p.clientCA)) {
			return nil, fmt.Errorf("load client CAs: no certificate in %s", file)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if name := files.ClientTLSSAN; name != "" {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("no client certificate")
			}
			return state.PeerCertificates[0].VerifyHostname(name)
		}
	}
	return config, nil
}
