package settings

import (
	"strings"

	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/remote"
)

// Memcache says which memcached servers count, and how to talk to them.
type Memcache struct {
	memcached.Options

	TLS                         bool   `env:"TLS" default:"false" help:"Connect over TLS."`
	TLSClientCert               string `name:"tls-client-cert" env:"TLS_CLIENT_CERT" help:"Client certificate (PEM). Changes of it, key and CAs count."`
	TLSClientKey                string `name:"tls-client-key" env:"TLS_CLIENT_KEY" help:"Its key (PEM)."`
	TLSCACert                   string `name:"tls-cacert" env:"TLS_CACERT" help:"The server's CAs (PEM); by default the system's."`
	TLSSkipHostnameVerification bool   `name:"tls-skip-hostname-verification" env:"TLS_SKIP_HOSTNAME_VERIFICATION" default:"false" help:"Accept a certificate that names another host."`
}

func (m *Memcache) conflicts() (wrong Errors) {
	wrong.require(len(m.Servers) > 0 || m.SRV != "", "MEMCACHE_HOST_PORT", "", "a server, or MEMCACHE_SRV set, because BACKEND_TYPE is memcache")
	wrong.require(len(m.Servers) == 0 || m.SRV == "", "MEMCACHE_SRV", m.SRV, "not set together with MEMCACHE_HOST_PORT")
	for i, server := range m.Servers {
		server = strings.TrimSpace(server)
		m.Servers[i] = server
		_, err := remote.HostPort(server, "")
		wrong.require(err == nil || strings.HasPrefix(server, "/"), "MEMCACHE_HOST_PORT", server, "host:port, or the path of a socket")
	}
	if m.TLS {
		wrong.pair("MEMCACHE_TLS_CLIENT_CERT", m.TLSClientCert, "MEMCACHE_TLS_CLIENT_KEY", m.TLSClientKey)
	}
	return wrong
}
