// Package certs keeps both sides of TLS in step with the PEM files that they
// come from, so that renewed certificates and CAs are used without a restart.
//
// A [Watcher] opens sets of files and reads them again once a second while it
// runs. It promises that each new connection gets the newest certificates and
// CAs that could be used together, and that files that cannot be used are
// logged once and change nothing. Connections that are open keep what they
// began with. It leaves to its users to ask for a configuration for each
// connection.
//
// The package exists because the libraries do less or bring more: grpc-go's pemfile
// wants the certificate and the key in one folder, logs a bad pair every time that
// it reads the files, private key included, and cannot report wrong files at the
// start; Kubernetes' dynamiccertificates needs all of k8s.io/apiserver.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// readEvery is how often the files are read again. Reading them costs more than
// a notification of the file system would, but cannot be missed.
const readEvery = time.Second

// Files name PEM files; an empty path means that there is no such file.
type Files struct {
	// Cert is the certificate chain that this side shows, Key its private key.
	Cert, Key string
	// CA holds the CAs that the other side's certificate must come from.
	CA string
}

// Watcher reads the files that it opened again while it runs.
type Watcher struct {
	log *slog.Logger

	mu   sync.Mutex
	open []*Certs
}

// NewWatcher returns a watcher that logs to log.
func NewWatcher(log *slog.Logger) *Watcher { return &Watcher{log: log} }

// Open reads the files. It fails when they cannot be used now. The name stands
// in the log when the files change later.
func (w *Watcher) Open(name string, files Files) (*Certs, error) {
	content := read(files)
	material, err := content.parse(files)
	if err != nil {
		return nil, err
	}
	c := &Certs{name: name, files: files, judged: content, log: w.log}
	c.inForce.Store(material)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, c)
	return c, nil
}

// Run reads all the files again, once a second, until ctx ends. It returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.reread()
		}
	}
}

func (w *Watcher) reread() {
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	for _, c := range open {
		c.reread()
	}
}

// Certs are the certificates and CAs that a set of files holds.
type Certs struct {
	name    string
	files   Files
	log     *slog.Logger
	inForce atomic.Pointer[material]
	judged  contents // the contents that were parsed last
	seen    contents // the contents that were read last
}

// material is the parsed contents of a set of files.
type material struct {
	certificates []tls.Certificate // none without Files.Cert
	cas          *x509.CertPool    // nil without Files.CA
}

// Server returns a server's side of TLS, 1.2 or later, for all connections.
// With a CA it asks every client for a certificate of that CA, and with a
// clientName for one that is valid for that DNS name.
func (c *Certs) Server(clientName string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.serverNow(clientName), nil
		},
	}
}

func (c *Certs) serverNow(clientName string) *tls.Config {
	m := c.inForce.Load()
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: m.certificates,
		ClientCAs:    m.cas,
		// A session that is resumed would skip the check by newer CAs.
		SessionTicketsDisabled: true,
	}
	if m.cas != nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if clientName != "" {
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("no client certificate")
			}
			return state.PeerCertificates[0].VerifyHostname(clientName)
		}
	}
	return config
}

// Client returns a client's side of TLS, 1.2 or later, for one connection; the
// caller may change it. Without a CA the system's CAs count.
func (c *Certs) Client() *tls.Config {
	m := c.inForce.Load()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: m.certificates, RootCAs: m.cas}
}

// AnyName changes a client's configuration so that the chain of the server's
// certificate is checked and its name is not.
func AnyName(config *tls.Config) {
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("no server certificate")
		}
		intermediates := x509.NewCertPool()
		for _, cert := range state.PeerCertificates[1:] {
			intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: config.RootCAs, Intermediates: intermediates})
		return err
	}
}

// reread reads the files. It parses their contents only if it has read the same
// contents twice in a row, because a certificate and its key are seldom written at
// the same moment.
func (c *Certs) reread() {
	next := read(c.files)
	settled := next == c.seen
	c.seen = next
	if !settled || next == c.judged {
		return
	}
	c.judged = next
	material, err := next.parse(c.files)
	if err != nil {
		c.log.Error("new certificates refused, the last good ones stay in force", "for", c.name, "error", err.Error())
		return
	}
	c.inForce.Store(material)
	c.log.Info("certificates read again", "for", c.name)
}

// contents are the bytes of a set of files, or why one of them cannot be read.
type contents struct{ cert, key, ca, unreadable string }

func read(files Files) (c contents) {
	for _, f := range []struct {
		into *string
		path string
	}{{&c.cert, files.Cert}, {&c.key, files.Key}, {&c.ca, files.CA}} {
		if f.path == "" {
			continue
		}
		content, err := os.ReadFile(f.path)
		if err != nil {
			c.unreadable = err.Error()
			return c
		}
		*f.into = string(content)
	}
	return c
}

func (c *contents) parse(files Files) (*material, error) {
	if c.unreadable != "" {
		return nil, fmt.Errorf("load certificates: %s", c.unreadable)
	}
	m := &material{}
	if files.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(c.cert), []byte(c.key))
		if err != nil {
			return nil, fmt.Errorf("load certificate %s with %s: %w", files.Cert, files.Key, err)
		}
		m.certificates = []tls.Certificate{pair}
	}
	if files.CA != "" {
		m.cas = x509.NewCertPool()
		if !m.cas.AppendCertsFromPEM([]byte(c.ca)) {
			return nil, fmt.Errorf("load CAs: no certificate in %s", files.CA)
		}
	}
	return m, nil
}
