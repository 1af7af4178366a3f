package reread

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
)

// CertFiles name PEM files; an empty path means that there is no such file.
type CertFiles struct {
	// Cert is the certificate chain that this side shows, Key its private key.
	Cert, Key string
	// CA holds the CAs that the other side's certificate must come from.
	CA string
}

// Certs are both sides of TLS, from the certificates and CAs that a set of files holds. Each new
// connection gets the newest ones that could be used together, if its user asks for a
// configuration for it. Connections that are open keep their certificates.
//
// The libraries do less or bring more: grpc-go's pemfile wants the certificate and the key in one
// folder, logs a bad pair every time that it reads the files, private key included, and cannot
// report wrong files at the start; Kubernetes' dynamiccertificates needs all of k8s.io/apiserver.
type Certs struct{ files *Value[*Material] }

// OpenCerts reads the files, and has the watcher read them again while it runs. It fails
// when they cannot be used now. The name stands in the log when the files change
// later.
func OpenCerts(w *Watcher, name string, files CertFiles) (*Certs, error) {
	opened, err := Open(w, name, []string{files.Cert, files.Key, files.CA}, files.parse, nil)
	if err != nil {
		return nil, err
	}
	return &Certs{opened}, nil
}

// Material is the contents of a set of CertFiles, the value that a watcher tells of.
type Material struct {
	certificates []tls.Certificate // none without CertFiles.Cert
	cas          *x509.CertPool    // nil without CertFiles.CA
}

// Server returns a server's side of TLS, 1.2 or later, for all connections, over which
// the protocols can be spoken (ALPN). With a CA it asks every client for a certificate
// of that CA, and with a clientName for one that is valid for that DNS name.
func (c *Certs) Server(clientName string, protocols ...string) *tls.Config {
	now := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := c.files.Now()
		config := &tls.Config{
			MinVersion:   tls.VersionTLS12,
			NextProtos:   protocols,
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
		return config, nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: now}
}

// Client returns a client's side of TLS, 1.2 or later, for one connection; the
// caller may change it. Without a CA the system's CAs count.
func (c *Certs) Client() *tls.Config {
	m := c.files.Now()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: m.certificates, RootCAs: m.cas}
}

// Peer returns a client's side of TLS, 1.2 or later, for all connections to processes of the
// same service. A server is one of them if it shows the certificate that this side has
// itself, or one of the CAs that is valid for a name of this side's own; without a CA only
// the former. This side shows its own certificate to a server that asks for one.
func (c *Certs) Peer() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection checks
		VerifyConnection: func(state tls.ConnectionState) error {
			m := c.files.Now()
			own, shown := m.Leaf(), state.PeerCertificates[0] // a server always shows one
			switch {
			case own == nil:
				return errNoPeer
			case shown.Equal(own):
				return nil
			case m.cas == nil:
				return errNoPeer
			}
			if err := verify(state, m.cas); err != nil {
				return fmt.Errorf("%w: %w", errNoPeer, err)
			}
			names := slices.Clone(own.DNSNames)
			for _, ip := range own.IPAddresses {
				names = append(names, ip.String())
			}
			if !slices.ContainsFunc(names, func(name string) bool { return shown.VerifyHostname(name) == nil }) {
				return errNoPeer
			}
			return nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &c.files.Now().certificates[0], nil
		},
	}
}

var errNoPeer = errors.New("the certificate that it shows is neither this side's own, nor one of the CAs for a name of this side's own")

// AnyName changes a client's configuration so that the chain of the server's
// certificate is checked and its name is not.
func AnyName(config *tls.Config) {
	config.InsecureSkipVerify = true
	config.VerifyConnection = func(state tls.ConnectionState) error {
		return verify(state, config.RootCAs)
	}
}

// verify checks the chain of the server's certificate, and not its name.
func verify(state tls.ConnectionState, roots *x509.CertPool) error {
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
	return err
}

// Leaf is the certificate that this side shows, nil if it has none.
func (m *Material) Leaf() *x509.Certificate {
	if len(m.certificates) == 0 {
		return nil
	}
	return m.certificates[0].Leaf
}

// parse parses the contents of the certificate, the key and the CAs.
func (f CertFiles) parse(contents []string) (*Material, error) {
	m := &Material{}
	if f.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(contents[0]), []byte(contents[1]))
		if err != nil {
			return nil, fmt.Errorf("load certificate %s with %s: %w", f.Cert, f.Key, err)
		}
		m.certificates = []tls.Certificate{pair}
	}
	if f.CA != "" {
		m.cas = x509.NewCertPool()
		if !m.cas.AppendCertsFromPEM([]byte(contents[2])) {
			return nil, fmt.Errorf("load CAs: no certificate in %s", f.CA)
		}
	}
	return m, nil
}
