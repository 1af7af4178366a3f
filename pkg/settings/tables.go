package settings

import "example.org/rls/pkg/sources/tables"

// Tables says how tables are fetched that rules name by an address.
type Tables struct {
	tables.Options

	TLSCACert     string `name:"tls-cacert" env:"TLS_CACERT" help:"The servers' CAs (PEM); by default the system's."`
	TLSClientCert string `name:"tls-client-cert" env:"TLS_CLIENT_CERT" help:"Client certificate (PEM)."`
	TLSClientKey  string `name:"tls-client-key" env:"TLS_CLIENT_KEY" help:"Its key (PEM)."`
}

func (t *Tables) conflicts() (wrong Errors) {
	wrong.pair("TABLE_TLS_CLIENT_CERT", t.TLSClientCert, "TABLE_TLS_CLIENT_KEY", t.TLSClientKey)
	return wrong
}
