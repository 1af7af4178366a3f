package settings

import "time"

// Tables says how tables are fetched that rules name by an address.
type Tables struct {
	MaxBytes int           `env:"MAX_BYTES" default:"268435456" min:"1024" max:"4294967296" unit:"bytes" help:"Largest table that is fetched."`
	Timeout  time.Duration `env:"TIMEOUT" default:"30s" min:"100ms" max:"10m" help:"Longest fetch. Rules with a new address take effect after its first."`

	TokenFile     string `env:"TOKEN_FILE" help:"File with a bearer token for the servers, sent only over TLS, never to another host. Changes of it and the next three files count."`
	TLSCACert     string `name:"tls-cacert" env:"TLS_CACERT" help:"The servers' CAs (PEM); by default the system's."`
	TLSClientCert string `name:"tls-client-cert" env:"TLS_CLIENT_CERT" help:"Client certificate (PEM)."`
	TLSClientKey  string `name:"tls-client-key" env:"TLS_CLIENT_KEY" help:"Its key (PEM)."`
}

func (t *Tables) conflicts() (wrong Errors) {
	wrong.pair("TABLE_TLS_CLIENT_CERT", t.TLSClientCert, "TABLE_TLS_CLIENT_KEY", t.TLSClientKey)
	return wrong
}
