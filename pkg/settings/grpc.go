package settings

import (
	"cmp"

	"example.org/rls/pkg/server"
)

// GRPC says where and how the RateLimitService is served.
type GRPC struct {
	Host string `env:"HOST" default:"0.0.0.0" help:"Address for gRPC."`
	Port int    `env:"PORT" default:"8081" min:"0" max:"65535" help:"Port for gRPC; 0: any free one."`

	server.GRPC

	ServerUseTLS    bool   `env:"SERVER_USE_TLS" default:"false" help:"Serve gRPC over TLS."`
	ServerTLSCert   string `name:"server-tls-cert" env:"SERVER_TLS_CERT" help:"Certificate chain (PEM)."`
	ServerTLSKey    string `name:"server-tls-key" env:"SERVER_TLS_KEY" help:"Its key (PEM)."`
	ClientTLSCACert string `name:"client-tls-cacert" env:"CLIENT_TLS_CACERT" help:"CAs of client certificates (PEM); if set, every client needs one."`
	ServerTLSCACert string `name:"server-tls-ca-cert" env:"SERVER_TLS_CA_CERT" help:"Envoy Gateway's name for GRPC_CLIENT_TLS_CACERT."`
	ClientTLSSAN    string `name:"client-tls-san" env:"CLIENT_TLS_SAN" help:"Required DNS name of client certificates."`

	Reflection bool `env:"REFLECTION" default:"false" help:"Serve gRPC reflection, for grpcurl."`
	Channelz   bool `env:"CHANNELZ" default:"false" help:"Serve channelz, gRPC's debugging service."`
}

// ClientCA is the file with the CAs of client certificates, by whichever of its two
// names it is set, or "".
func (g *GRPC) ClientCA() string { return cmp.Or(g.ClientTLSCACert, g.ServerTLSCACert) }

func (g *GRPC) conflicts() (wrong Errors) {
	if g.ServerUseTLS {
		wrong.require(g.ServerTLSCert != "", "GRPC_SERVER_TLS_CERT", "", "a file, because GRPC_SERVER_USE_TLS is true")
		wrong.require(g.ServerTLSKey != "", "GRPC_SERVER_TLS_KEY", "", "a file, because GRPC_SERVER_USE_TLS is true")
	} else {
		// Without TLS there are no client certificates, and everyone would be
		// served.
		wrong.require(g.ClientTLSCACert == "", "GRPC_CLIENT_TLS_CACERT", g.ClientTLSCACert, "set together with GRPC_SERVER_USE_TLS=true")
		wrong.require(g.ServerTLSCACert == "", "GRPC_SERVER_TLS_CA_CERT", g.ServerTLSCACert, "set together with GRPC_SERVER_USE_TLS=true")
	}
	wrong.require(g.ServerTLSCACert == "" || g.ClientCA() == g.ServerTLSCACert, "GRPC_SERVER_TLS_CA_CERT", g.ServerTLSCACert,
		"the same as GRPC_CLIENT_TLS_CACERT, or not set")
	wrong.require(g.ClientTLSSAN == "" || g.ClientCA() != "", "GRPC_CLIENT_TLS_SAN", g.ClientTLSSAN, "set together with GRPC_CLIENT_TLS_CACERT")
	return wrong
}
