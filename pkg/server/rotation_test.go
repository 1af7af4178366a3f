package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/settings"
)

// text is a log that is read while it is written.
type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var _ io.Writer = (*text)(nil)

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCertificatesFollowTheirFiles(t *testing.T) {
	t.Parallel()
	old, next := testenv.Certs(t), testenv.Certs(t)
	dir := t.TempDir()
	files := settings.GRPC{
		ServerUseTLS: true, ServerTLSCert: dir + "/crt", ServerTLSKey: dir + "/key", ClientTLSCACert: dir + "/ca",
	}
	install := func(c *testenv.TLS) {
		copyFile(t, c.ServerCertFile, files.ServerTLSCert)
		copyFile(t, c.ServerKeyFile, files.ServerTLSKey)
		copyFile(t, c.CAFile, files.ClientTLSCACert)
	}
	install(old)
	cfg := config()
	cfg.GRPC.ServerUseTLS, cfg.GRPC.ServerTLSCert, cfg.GRPC.ServerTLSKey, cfg.GRPC.ClientTLSCACert = true, files.ServerTLSCert, files.ServerTLSKey, files.ClientTLSCACert
	log := &text{}
	cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	s := start(t, cfg)
	// served reports whether a new connection with the certificates is.
	served := func(client *tls.Config) bool {
		conn := s.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(client)))
		defer conn.Close()
		return call(t, conn) == nil
	}
	conn := s.dial(t, grpc.WithTransportCredentials(credentials.NewTLS(old.Client)))
	if err := call(t, conn); err != nil || served(next.Client) {
		t.Fatal("the first certificates do not count", err)
	}

	install(next)
	testenv.Eventually(t, deadline, func() bool { return served(next.Client) }, "the new certificates count")
	trusting := old.Client.Clone()
	trusting.RootCAs = x509.NewCertPool()
	ca, err := os.ReadFile(next.CAFile)
	if err != nil || !trusting.RootCAs.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	if served(trusting) {
		t.Error("a client of the CA of before is still let in")
	}
	if err := call(t, conn); err != nil {
		t.Errorf("connection of before: %v", err)
	}

	for name, spoil := range map[string]func(){
		"another key": func() { copyFile(t, old.ServerKeyFile, files.ServerTLSKey) },
		"no CA":       func() { copyFile(t, next.ServerKeyFile, files.ClientTLSCACert) },
		"no file":     func() { _ = os.Remove(files.ServerTLSCert) },
	} {
		before := strings.Count(log.String(), "new certificates refused")
		spoil()
		testenv.Eventually(t, deadline, func() bool {
			return strings.Count(log.String(), "new certificates refused") > before
		}, name+" is logged")
		if !served(next.Client) {
			t.Errorf("%s: the last good ones do not count any more", name)
		}
		install(next)
		before = strings.Count(log.String(), "read again")
		testenv.Eventually(t, deadline, func() bool { return strings.Count(log.String(), "read again") > before }, "mended after "+name)
	}
}
