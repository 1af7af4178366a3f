package cli

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/reread"
)

// TLSFlags are the flags of a command that connects to a service.
type TLSFlags struct {
	TLS        bool   `name:"tls" help:"Connect over TLS."`
	CA         string `name:"ca" placeholder:"FILE" help:"CAs that the server's certificate must come from (PEM); the system's by default."`
	Cert       string `placeholder:"FILE" help:"Client certificate (PEM)."`
	Key        string `placeholder:"FILE" help:"Its private key (PEM)."`
	ServerName string `placeholder:"NAME" help:"Name that the server's certificate must carry; the host of --addr by default."`
}

// Config returns the TLS configuration that the flags describe, or nil without
// --tls. Its errors are usage errors.
func (f *TLSFlags) Config() (*tls.Config, error) {
	if !f.TLS {
		if f.CA+f.Cert+f.Key+f.ServerName != "" {
			return nil, UsageError("--ca, --cert, --key and --server-name are for --tls")
		}
		return nil, nil
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, UsageError("--cert and --key: want both or neither")
	}
	own, err := reread.OpenCerts(reread.NewWatcher(slog.Default()), "", reread.CertFiles{Cert: f.Cert, Key: f.Key, CA: f.CA})
	if err != nil {
		return nil, UsageError("--ca, --cert or --key: %w", err)
	}
	config := own.Client()
	config.ServerName = f.ServerName
	return config, nil
}

// Endpoint reads an address, HOST:PORT (without a host: localhost) or unix:PATH, as
// net.Dial takes it. Its errors are usage errors.
func Endpoint(addr string) (network, address string, err error) {
	wrong := UsageError("--addr: %q is wrong: want HOST:PORT or unix:PATH", addr)
	if path, found := strings.CutPrefix(addr, "unix:"); found {
		path = strings.TrimPrefix(path, "//")
		if path == "" {
			return "", "", wrong
		}
		return "unix", path, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if n, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil || n == 0 {
		return "", "", wrong
	}
	return "tcp", net.JoinHostPort(cmp.Or(host, "localhost"), port), nil
}

// Dial returns a connection to the address, HOST:PORT or unix:PATH, that is made with the first
// call. A nil config is a connection without TLS. Its errors are usage errors.
func Dial(addr string, config *tls.Config) (*grpc.ClientConn, error) {
	if _, _, err := Endpoint(addr); err != nil {
		return nil, err
	}
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, UsageError("--addr: %w", err)
	}
	return conn, nil
}

// Plain returns the error of a call as CODE: MESSAGE, with advice where the address or TLS is wrong.
func Plain(err error) error {
	answer, ok := status.FromError(err)
	if !ok {
		return err
	}
	advice, message := "", answer.Message()
	has := func(text string) bool { return strings.Contains(message, text) }
	switch {
	case strings.HasPrefix(message, "rate limit not decided"): // by the service, which was reached
	case answer.Code() != codes.Unavailable:
	case has("connection refused"):
		advice = "nothing listens there (the service's gRPC port is 8081 unless GRPC_PORT is set): "
	case has("certificate required"), has("reset by peer"), has("broken pipe"):
		advice = "the server ended the connection: with TLS it may want a client certificate (--cert, --key): "
	case has("server preface"):
		advice = "the server there does not speak gRPC (the service's gRPC port is 8081 unless GRPC_PORT is set), or wants TLS (--tls): "
	}
	return fmt.Errorf("%v: %s%s", answer.Code(), advice, message)
}
