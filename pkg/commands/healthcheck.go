package commands

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"example.org/rls/internal/cli"
)

const healthcheckHelp = `The command asks for the health of the whole service (grpc.health.v1). Without --addr
and --tls in an environment with GRPC_SERVER_USE_TLS=true, such as that of a container,
it connects over TLS and does not check the certificate. A service that wants a
certificate from its clients (GRPC_CLIENT_TLS_CACERT) needs --tls, --ca, --cert and --key.

Exit codes:
  0  the service is SERVING
  1  it is not, or it does not answer in time
  2  a flag is wrong, or a file cannot be read

Examples:
  rls healthcheck
  rls healthcheck --addr rls.example:8081 --tls --ca ca.pem --timeout 1s`

type healthcheckCmd struct {
	Addr       string        `placeholder:"ADDR" help:"Where the service listens: HOST:PORT, or unix:PATH. By default it is where GRPC_HOST, GRPC_PORT and GRPC_UDS of this environment say, else localhost:8081."`
	Timeout    time.Duration `default:"2s" min:"1ms" help:"Longest wait for the answer."`
	cli.Output `set:"output=answer"`
	cli.TLSFlags
}

func (c *healthcheckCmd) Run(ctx context.Context, k *kong.Kong) error {
	config, err := c.Config()
	if err != nil {
		return err
	}
	if c.Addr == "" {
		c.Addr = ownAddress()
		if encrypted, _ := strconv.ParseBool(os.Getenv("GRPC_SERVER_USE_TLS")); encrypted && config == nil {
			// Nothing secret is sent, and the certificate names the service as its
			// clients know it, which is not localhost.
			config = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
		}
	}
	conn, err := cli.Dial(c.Addr, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	state := answer.GetStatus() // UNKNOWN without an answer
	switch {
	case err != nil:
		err = fmt.Errorf("ask %s: %w", c.Addr, cli.Plain(err))
	case state != healthpb.HealthCheckResponse_SERVING:
		err = fmt.Errorf("%s is %v", c.Addr, state)
	}
	if c.JSON() || err == nil {
		err = errors.Join(c.Write(k.Stdout, map[string]string{"addr": c.Addr, "status": state.String()}, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, state)
			return err
		}), err)
	}
	return err
}

// ownAddress is the address on which a service with the environment of this process listens.
func ownAddress() string {
	if path := os.Getenv("GRPC_UDS"); path != "" {
		return "unix:" + path
	}
	host, port := strings.Trim(os.Getenv("GRPC_HOST"), " []"), os.Getenv("GRPC_PORT")
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil { // also tcp://… of a Kubernetes Service
		port = "8081"
	}
	return net.JoinHostPort(host, port)
}
