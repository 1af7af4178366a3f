package settings

import "time"

// Tables says how tables are fetched that rules name by an address.
type Tables struct {
	MaxBytes int           `env:"MAX_BYTES" default:"268435456" min:"1024" max:"4294967296" unit:"bytes" help:"Largest table; a larger one counts as one that cannot be fetched."`
	Timeout  time.Duration `env:"TIMEOUT" default:"30s" min:"100ms" max:"10m" help:"Longest time of one fetch. Rules that name a new address are in force when its first fetch is over."`

	TokenFile     string `env:"TOKEN_FILE" help:"File with a bearer token for the servers of tables. It is sent over TLS only, and not to another host to which a server redirects. It is read again when it changes, as are the files of the next three settings."`
	TLSCACert     string `name:"tls-cacert" env:"TLS_CACERT" help:"File with the CAs that must have signed the servers' certificates (PEM); by default the system's."`
	TLSClientCert string `name:"tls-client-cert" env:"TLS_CLIENT_CERT" help:"File with the client certificate (PEM)."`
	TLSClientKey  string `name:"tls-client-key" env:"TLS_CLIENT_KEY" help:"File with the certificate's private key (PEM)."`
}

func (t *Tables) conflicts() (wrong Errors) {
	wrong.pair("TABLE_TLS_CLIENT_CERT", t.TLSClientCert, "TABLE_TLS_CLIENT_KEY", t.TLSClientKey)
	return wrong
}
