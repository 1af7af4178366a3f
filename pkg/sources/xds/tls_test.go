package xds_test

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.org/rls/internal/testenv"
	"example.org/rls/internal/testenv/controlplane"
	"example.org/rls/pkg/sources/xds"
)

func TestCertificatesAreReadForEachConnection(t *testing.T) {
	mutual := func(c *testenv.TLS) grpc.ServerOption {
		config := c.Server.Clone()
		config.MinVersion, config.ClientAuth = tls.VersionTLS13, tls.RequireAndVerifyClientCert
		return grpc.Creds(credentials.NewTLS(config))
	}
	var reads atomic.Int64
	var installed atomic.Pointer[testenv.TLS]
	load := func() (*tls.Config, error) {
		reads.Add(1)
		if c := installed.Load(); c != nil {
			return c.ForClient(), nil
		}
		return nil, errors.New("no certificate yet")
	}

	// The source goes on when there is no certificate.
	at, p := controlplane.NewPort(t), controlplane.New(t, node)
	old := testenv.Certs(t)
	p.Set("1", rules("first", "a", 1))
	at.Serve(p, mutual(old))
	o := run(t, &xds.Source{Server: at.Addr, TLS: load})
	testenv.Eventually(t, soon, func() bool { return reads.Load() > 2 }, "tried again")
	installed.Store(old)
	o.become("a")

	// The server changes its authority, and refuses the old certificate.
	at.Stop()
	rotated := testenv.Certs(t)
	p = controlplane.New(t, node)
	p.Set("1", rules("first", "b", 1))
	at.Serve(p, mutual(rotated))
	before := reads.Load()
	testenv.Eventually(t, soon, func() bool { return reads.Load() > before+2 }, "tried again")
	if o.now() != "a" {
		t.Errorf("in force: %s", o.now())
	}
	installed.Store(rotated)
	o.become("b")
}
