package xds_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.org/rls/internal/testenv"
	"example.org/rls/internal/testenv/controlplane"
	"example.org/rls/pkg/sources/xds"
)

func TestCertificatesAreReadForEachConnection(t *testing.T) {
	dir := t.TempDir()
	install := func(c *testenv.TLS) {
		t.Helper()
		for from, to := range map[string]string{c.CAFile: "ca", c.ClientCertFile: "cert", c.ClientKeyFile: "key"} {
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(dir+"/"+to, content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	mutual := func(c *testenv.TLS) grpc.ServerOption {
		config := c.Server.Clone()
		config.MinVersion, config.ClientAuth = tls.VersionTLS13, tls.RequireAndVerifyClientCert
		return grpc.Creds(credentials.NewTLS(config))
	}
	var mu sync.Mutex
	reads := 0
	load := func() (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		reads++
		pair, err := tls.LoadX509KeyPair(dir+"/cert", dir+"/key")
		if err != nil {
			return nil, err
		}
		ca, err := os.ReadFile(dir + "/ca")
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}, err
	}

	// The source goes on when a file is missing.
	at, p := controlplane.NewPort(t), controlplane.New(t, node)
	old := testenv.Certs(t)
	p.Set("1", rules("first", "a", 1))
	at.Serve(p, mutual(old))
	o := run(t, &xds.Source{Server: at.Addr, TLS: load})
	testenv.Eventually(t, soon, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return reads > 2
	}, "tried again")
	install(old)
	o.become("a")

	// The server changes its authority, and refuses the old certificate.
	at.Stop()
	rotated := testenv.Certs(t)
	p = controlplane.New(t, node)
	p.Set("1", rules("first", "b", 1))
	at.Serve(p, mutual(rotated))
	mu.Lock()
	before := reads
	mu.Unlock()
	testenv.Eventually(t, soon, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return reads > before+2
	}, "tried again")
	if o.now() != "a" {
		t.Errorf("in force: %s", o.now())
	}
	install(rotated)
	o.become("b")
}
