package settings

import (
	"strings"
	"time"

	"example.org/rls/pkg/backends/remote"
)

// Memcache says which memcached servers count, and how to talk to them.
type Memcache struct {
	HostPort     []string      `env:"HOST_PORT" help:"Servers as host:port (or paths of Unix sockets), separated by commas."`
	SRV          string        `env:"SRV" help:"DNS SRV record with the servers, instead of MEMCACHE_HOST_PORT."`
	SRVRefresh   time.Duration `env:"SRV_REFRESH" default:"0s" min:"0s" help:"How often MEMCACHE_SRV is resolved again; 0 is only at the start."`
	MaxIdleConns int           `env:"MAX_IDLE_CONNS" default:"64" min:"1" max:"10000" help:"Idle connections kept to each server. envoyproxy/ratelimit keeps 2 and dials for every further call."`
	Timeout      time.Duration `env:"TIMEOUT" default:"500ms" min:"1ms" max:"1h" help:"Longest wait for a connection or an answer; a shorter deadline of the caller ends the wait sooner."`

	TLS                         bool   `env:"TLS" default:"false" help:"Connect over TLS."`
	TLSClientCert               string `name:"tls-client-cert" env:"TLS_CLIENT_CERT" help:"File with the client certificate (PEM). The files of the certificate, its key and the CAs are read again when they change."`
	TLSClientKey                string `name:"tls-client-key" env:"TLS_CLIENT_KEY" help:"File with the certificate's private key (PEM)."`
	TLSCACert                   string `name:"tls-cacert" env:"TLS_CACERT" help:"File with the CAs that must have signed the server's certificate (PEM); by default the system's."`
	TLSSkipHostnameVerification bool   `name:"tls-skip-hostname-verification" env:"TLS_SKIP_HOSTNAME_VERIFICATION" default:"false" help:"Accept a certificate that names another host."`
}

func (m *Memcache) conflicts() (wrong Errors) {
	wrong.require(len(m.HostPort) > 0 || m.SRV != "", "MEMCACHE_HOST_PORT", "", "a server, or MEMCACHE_SRV set, because BACKEND_TYPE is memcache")
	wrong.require(len(m.HostPort) == 0 || m.SRV == "", "MEMCACHE_SRV", m.SRV, "not set together with MEMCACHE_HOST_PORT")
	for i, server := range m.HostPort {
		server = strings.TrimSpace(server)
		m.HostPort[i] = server
		_, err := remote.HostPort(server, "")
		wrong.require(err == nil || strings.HasPrefix(server, "/"), "MEMCACHE_HOST_PORT", server, "host:port, or the path of a socket")
	}
	if m.TLS {
		wrong.pair("MEMCACHE_TLS_CLIENT_CERT", m.TLSClientCert, "MEMCACHE_TLS_CLIENT_KEY", m.TLSClientKey)
	}
	return wrong
}
