package settings

import (
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// XDS says which management server sends the rules when CONFIG_TYPE starts with
// GRPC_XDS, and with which identity it is asked.
type XDS struct {
	NodeID       string `env:"NODE_ID" default:"default" help:"Id of the node to ask rules for."`
	NodeMetadata string `env:"NODE_METADATA" help:"The node's metadata: key=value,key=value."`
	ServerURL    string `name:"server-url" env:"SERVER_URL" default:"localhost:18000" help:"The server: host:port, or another gRPC target."`

	ServerConnectRetryInterval time.Duration `env:"SERVER_CONNECT_RETRY_INTERVAL" default:"3s" min:"1ms" max:"1h" help:"First wait for an unreachable server; later ones are longer."`
	ClientAdditionalHeaders    string        `env:"CLIENT_ADDITIONAL_HEADERS" help:"Headers for the server: key:value,key:value."`

	ClientAdditionalHeadersFile string `env:"CLIENT_ADDITIONAL_HEADERS_FILE" help:"File with the headers, separated by commas or line breaks. Changes count for the next stream."`

	ServerUseTLS    bool   `name:"server-use-tls" env:"SERVER_USE_TLS" default:"false" help:"Connect over TLS."`
	ClientTLSCert   string `name:"client-tls-cert" env:"CLIENT_TLS_CERT" help:"Client certificate (PEM). Changes of it, key and CAs count."`
	ClientTLSKey    string `name:"client-tls-key" env:"CLIENT_TLS_KEY" help:"Its key (PEM)."`
	ServerTLSCACert string `name:"server-tls-cacert" env:"SERVER_TLS_CACERT" help:"The server's CAs (PEM); by default the system's."`
	ServerTLSSAN    string `name:"server-tls-san" env:"SERVER_TLS_SAN" help:"Required name of the server's certificate; by default the URL's host."`
}

// XDSClient says how often to connect to that server again, and how large its
// messages may be.
type XDSClient struct {
	BackoffInitialInterval time.Duration `env:"BACKOFF_INITIAL_INTERVAL" default:"10s" min:"1ms" max:"1h" help:"First wait after a stream's end; later ones are longer."`
	BackoffMaxInterval     time.Duration `env:"BACKOFF_MAX_INTERVAL" default:"60s" min:"1ms" max:"24h" help:"Longest wait."`
	BackoffRandomFactor    float64       `env:"BACKOFF_RANDOM_FACTOR" default:"0.5" min:"0" max:"1000" help:"Each wait is this many times the one before; 1 or less means 2."`
	BackoffJitter          bool          `env:"BACKOFF_JITTER" default:"true" help:"Wait a random part of each wait, at least half."`

	MaxMsgSizeInBytes int `env:"MAX_MSG_SIZE_IN_BYTES" default:"0" min:"0" max:"2147483647" unit:"bytes" help:"Largest message of the server; 0 is 4 MiB."`
}

// OverXDS reports whether the rules come from a management server.
func (r *Rules) OverXDS() bool { return r.ConfigType != "FILE" }

// Metadata is NodeMetadata by key.
func (x *XDS) Metadata() map[string]string {
	metadata, _ := pairs(x.NodeMetadata, "=")
	return metadata
}

// Headers reads a list of headers, as CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS has
// it, and reports whether it is one.
func Headers(list string) (headers map[string]string, ok bool) {
	headers, ok = pairs(list, ":")
	for name := range headers {
		name = strings.ToLower(name) // the headers of HTTP/2 and of gRPC itself cannot be set
		ok = ok && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" && !strings.HasPrefix(name, "grpc-")
	}
	return headers, ok
}

// WantHeaders says which lists of headers are right.
const WantHeaders = "key:value, separated by commas, where the keys can be those of HTTP headers"

// pairs splits a list of keys and values, and reports whether every part has both.
func pairs(list, separator string) (map[string]string, bool) {
	m, ok := map[string]string{}, true
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(pair, separator)
		key = strings.TrimSpace(key)
		ok = ok && found && key != ""
		m[key] = strings.TrimSpace(value)
	}
	return m, ok
}

// hideValues is a list of headers with *** in place of every value, and of every
// part that is no header: both may be secret.
func hideValues(list string) string {
	var shown []string
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, _, found := strings.Cut(pair, ":")
		if name = strings.TrimSpace(name); found && httpguts.ValidHeaderFieldName(name) {
			shown = append(shown, name+":***")
		} else {
			shown = append(shown, "***")
		}
	}
	return strings.Join(shown, ",")
}

func (x *XDS) conflicts() (wrong Errors) {
	_, ok := pairs(x.NodeMetadata, "=")
	wrong.require(ok, "CONFIG_GRPC_XDS_NODE_METADATA", x.NodeMetadata, "key=value, separated by commas")
	const headers = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"
	_, ok = Headers(x.ClientAdditionalHeaders)
	wrong.require(ok, headers, hideValues(x.ClientAdditionalHeaders), WantHeaders)
	wrong.oneSecret(headers, x.ClientAdditionalHeaders, headers+"_FILE", x.ClientAdditionalHeadersFile)
	wrong.require(x.ServerURL != "", "CONFIG_GRPC_XDS_SERVER_URL", x.ServerURL, "an address such as localhost:18000")
	if x.ServerUseTLS {
		wrong.pair("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", x.ClientTLSCert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", x.ClientTLSKey)
	}
	return wrong
}
