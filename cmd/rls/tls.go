package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"example.org/rls/pkg/settings"
)

// tlsFiles are a client's own certificate with its key, and the CAs that the
// server's certificate must come from. Without cert the client shows none,
// without ca the system's CAs count.
type tlsFiles struct{ cert, key, ca string }

func (f tlsFiles) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("load client certificate %s with %s: %w", f.cert, f.key, err)
	}
	return &pair, nil
}

// config is the client's side of TLS, 1.2 or later, with what the files hold
// now.
func (f tlsFiles) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.cert != "" {
		pair, err := f.pair()
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{*pair}
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("load CAs: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("load CAs: no certificate in %s", f.ca)
		}
	}
	return config, nil
}

// configForStore is config, with the client certificate read again for each
// connection. The CAs are not: whoever checks against others than the config's
// has to check the server's name, too, and is not told it when that is an IP
// address. anyHost checks the chain of the server's certificate but not its name.
func (f tlsFiles) configForStore(anyHost bool, log *slog.Logger) (*tls.Config, error) {
	config, err := tlsFiles{ca: f.ca}.config()
	if err != nil {
		return nil, err
	}
	if f.cert != "" {
		pair, err := lastGood(f.pair, log)
		if err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair(), nil }
	}
	if anyHost {
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, config.RootCAs) }
	}
	return config, nil
}

// xdsTLS gives each connection to a management server what its files hold then.
func xdsTLS(x *settings.XDS, log *slog.Logger) (func() (*tls.Config, error), error) {
	config, err := lastGood(tlsFiles{x.ClientTLSCert, x.ClientTLSKey, x.ServerTLSCACert}.config, log)
	if err != nil {
		return nil, err
	}
	return func() (*tls.Config, error) {
		config := config().Clone()
		config.ServerName = x.ServerTLSSAN // "" is the host of the URL
		return config, nil
	}, nil
}

// lastGood reads files, and again whenever it is asked. While they cannot be
// used what they held before is the answer, and the log says so once for each
// reason. Its error is that they cannot be used now.
func lastGood[T any](read func() (T, error), log *slog.Logger) (func() T, error) {
	good, err := read()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	said := ""
	return func() T {
		next, err := read()
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			good, said = next, ""
		case err.Error() != said:
			said = err.Error()
			log.Error("new certificates refused, the last good ones stay in force", "error", said)
		}
		return good
	}, nil
}

func verifyChain(state tls.ConnectionState, roots *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("no server certificate")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range state.PeerCertificates[1:] {
		intermediates.AddCert(cert)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates})
	return err
}
