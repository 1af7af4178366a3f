package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"example.org/rls/pkg/settings"
)

// tlsConfig is the gRPC listener's: TLS 1.2 or later, and with a client CA
// every client needs a certificate from it, and the wanted name in it.
func tlsConfig(c settings.GRPC) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.ServerTLSCert, c.ServerTLSKey)
	if err != nil {
		return nil, fmt.Errorf("load server certificate: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if file := c.ClientCA(); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("load client CAs: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("load client CAs: no certificate in %s", file)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if name := c.ClientTLSSAN; name != "" {
		// Called for resumed sessions too, unlike VerifyPeerCertificate.
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("no client certificate")
			}
			return state.PeerCertificates[0].VerifyHostname(name)
		}
	}
	return config, nil
}
