package server_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/server"
)

func TestTLS(t *testing.T) {
	certs := testenv.Certs(t)
	strangers := testenv.Certs(t)
	anonymous := &tls.Config{RootCAs: certs.Client.RootCAs, MinVersion: tls.VersionTLS12}
	stranger := &tls.Config{RootCAs: certs.Client.RootCAs, Certificates: strangers.Client.Certificates, MinVersion: tls.VersionTLS12}
	leaf, err := tls.LoadX509KeyPair(certs.ClientCertFile, certs.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		clientCA string
		serverCA string // the same setting's other name
		san      string
		client   *tls.Config // nil is plaintext
		let      bool
	}{
		{"server only", "", "", "", anonymous, true},
		{"plaintext", "", "", "", nil, false},
		{"mutual", certs.CAFile, "", "", certs.Client, true},
		{"mutual, anonymous", certs.CAFile, "", "", anonymous, false},
		{"mutual, stranger", certs.CAFile, "", "", stranger, false},
		{"other name", "", certs.CAFile, "", certs.Client, true},
		{"other name, anonymous", "", certs.CAFile, "", anonymous, false},
		{"SAN", certs.CAFile, "", leaf.Leaf.DNSNames[0], certs.Client, true},
		{"other SAN", certs.CAFile, "", "other.example", certs.Client, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config()
			cfg.GRPC.ServerUseTLS, cfg.GRPC.ServerTLSCert, cfg.GRPC.ServerTLSKey = true, certs.ServerCertFile, certs.ServerKeyFile
			cfg.GRPC.ClientTLSCACert, cfg.GRPC.ServerTLSCACert, cfg.GRPC.ClientTLSSAN = tt.clientCA, tt.serverCA, tt.san
			log := &text{}
			cfg.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			s := start(t, cfg)
			var options []grpc.DialOption
			if tt.client != nil {
				options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(tt.client)))
			}
			if err := call(t, s.dial(t, options...)); (err == nil) != tt.let {
				t.Errorf("got %v, let in is %v", err, tt.let)
			}
			refused := func() bool { return strings.Contains(log.String(), "TLS handshake failed") }
			if tt.let && refused() {
				t.Error("the log tells of a refusal")
			} else if !tt.let {
				testenv.Eventually(t, deadline, refused, "the log tells of the refusal")
			}
		})
	}
}

func TestTLSFilesThatCannotBeUsed(t *testing.T) {
	certs := testenv.Certs(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][3]string{
		"no certificate":    {"/missing.pem", certs.ServerKeyFile, ""},
		"another's key":     {certs.ServerCertFile, certs.ClientKeyFile, ""},
		"missing client CA": {certs.ServerCertFile, certs.ServerKeyFile, "/missing.pem"},
		"empty client CA":   {certs.ServerCertFile, certs.ServerKeyFile, empty},
	} {
		cfg := config()
		cfg.GRPC.ServerUseTLS = true
		cfg.GRPC.ServerTLSCert, cfg.GRPC.ServerTLSKey, cfg.GRPC.ClientTLSCACert = files[0], files[1], files[2]
		if _, err := server.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rls.sock")
	cfg := config()
	cfg.GRPC.UDS = path

	// A process that was killed left its socket behind.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()

	s := start(t, cfg)
	if err := call(t, s.dial(t)); err != nil {
		t.Error(err)
	}
	if _, err := server.New(cfg); err == nil {
		t.Error("took over a socket that is in use")
	}
	if err := call(t, s.dial(t)); err != nil {
		t.Errorf("after another process tried: %v", err)
	}
	s.stop(t)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestUnixSocketIsNoReasonToRemoveAFile(t *testing.T) {
	cfg := config()
	cfg.GRPC.UDS = filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(cfg.GRPC.UDS, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(cfg); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(cfg.GRPC.UDS); err != nil {
		t.Error(err)
	}
}

func TestUnixSocketWithALongPath(t *testing.T) {
	cfg := config()
	cfg.GRPC.UDS = filepath.Join(t.TempDir(), strings.Repeat("a", 108))
	_, err := server.New(cfg)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("path of %d bytes, want at most 10", len(cfg.GRPC.UDS))) {
		t.Errorf("got %v", err)
	}
}

// A second process listens on the same ports before the first one ends.
func TestPortsAreShared(t *testing.T) {
	first := start(t, config())
	cfg := config()
	port := func(addr net.Addr) int { return addr.(*net.TCPAddr).Port }
	addrs := first.Addrs()
	cfg.GRPC.Port, cfg.Server.Port, cfg.Server.DebugPort = port(addrs.GRPC), port(addrs.HTTP), port(addrs.Debug)
	second := start(t, cfg)
	conn := second.dial(t)
	if err := call(t, conn); err != nil {
		t.Error(err)
	}
	first.stop(t)
	if err := call(t, conn); err != nil {
		t.Errorf("when the first one has ended: %v", err)
	}
	if code, _ := get(t, addrs.Debug, "/rlconfig"); code != 200 {
		t.Errorf("/rlconfig when the first one has ended: %d", code)
	}
}

func TestListenersCanBeOff(t *testing.T) {
	off := map[string]func(*server.Config){
		"gRPC":  func(cfg *server.Config) { cfg.Server.UseGRPC = false },
		"HTTP":  func(cfg *server.Config) { cfg.Server.UseHTTP = false },
		"debug": func(cfg *server.Config) { cfg.Server.UseDebug = false },
	}
	for name, turnOff := range off {
		cfg := config()
		turnOff(&cfg)
		s := start(t, cfg)
		for listener, addr := range map[string]net.Addr{"gRPC": s.Addrs().GRPC, "HTTP": s.Addrs().HTTP, "debug": s.Addrs().Debug} {
			if (addr != nil) != (listener != name) {
				t.Errorf("without %s: %s listens on %v", name, listener, addr)
			}
		}
		s.stop(t)
	}
}
