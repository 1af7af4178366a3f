package main

import (
	"crypto/tls"
	"fmt"

	"example.org/rls/pkg/certs"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/settings"
)

// storeTLS opens the files for connections to a store; their settings begin
// with the prefix. The function returns the configuration for a new connection.
func storeTLS(watch *reread.Watcher, prefix string, files certs.Files, anyName bool) (func() *tls.Config, error) {
	own, err := certs.Open(watch, prefix+"*", files)
	if err != nil {
		return nil, fmt.Errorf("%s*: %w", prefix, err)
	}
	return func() *tls.Config {
		config := own.Client()
		if anyName {
			certs.AnyName(config)
		}
		return config
	}, nil
}

// xdsTLS opens the files for connections to a management server. The function
// returns the configuration for a new connection.
func xdsTLS(watch *reread.Watcher, x *settings.XDS) (func() (*tls.Config, error), error) {
	const name = "CONFIG_GRPC_XDS_*_TLS_*"
	own, err := certs.Open(watch, name, certs.Files{Cert: x.ClientTLSCert, Key: x.ClientTLSKey, CA: x.ServerTLSCACert})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return func() (*tls.Config, error) {
		config := own.Client()
		config.ServerName = x.ServerTLSSAN // "" is the host of the URL
		return config, nil
	}, nil
}
