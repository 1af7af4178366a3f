package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// clientTLS is the client's side of TLS, 1.2 or later. Empty paths leave out
// the client certificate and take the system's CAs. The client certificate is
// read again for each connection; while its files cannot be used the last good
// one is shown. anyHost checks the chain
// of the server's certificate but not its name.
func clientTLS(cert, key, ca string, anyHost bool) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("load client certificate: %w", err)
		}
		var last atomic.Pointer[tls.Certificate]
		last.Store(&pair)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if pair, err := tls.LoadX509KeyPair(cert, key); err == nil {
				last.Store(&pair)
			}
			return last.Load(), nil
		}
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("load CAs: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("load CAs: no certificate in %s", ca)
		}
	}
	if anyHost {
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, config.RootCAs) }
	}
	return config, nil
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
