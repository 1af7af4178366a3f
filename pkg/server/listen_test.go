package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"example.org/rls/internal/reread"
	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/server"
)

func TestTLS(t *testing.T) {
	ours, strangers := testenv.Certs(t), testenv.Certs(t)
	anonymous := &tls.Config{RootCAs: ours.Client.RootCAs, MinVersion: tls.VersionTLS12}
	stranger := &tls.Config{RootCAs: ours.Client.RootCAs, Certificates: strangers.Client.Certificates, MinVersion: tls.VersionTLS12}
	alone := reread.CertFiles{Cert: ours.ServerCertFile, Key: ours.ServerKeyFile}
	mutual := reread.CertFiles{Cert: ours.ServerCertFile, Key: ours.ServerKeyFile, CA: ours.CAFile}
	leaf, err := tls.LoadX509KeyPair(ours.ClientCertFile, ours.ClientKeyFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		files  reread.CertFiles
		san    string
		client *tls.Config // nil is plain text
		let    bool
	}{
		{"server only", alone, "", anonymous, true},
		{"plain text", alone, "", nil, false},
		{"mutual", mutual, "", ours.Client, true},
		{"mutual, anonymous", mutual, "", anonymous, false},
		{"mutual, stranger", mutual, "", stranger, false},
		{"SAN", mutual, leaf.Leaf.DNSNames[0], ours.Client, true},
		{"other SAN", mutual, "other.example", ours.Client, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opened, err := reread.OpenCerts(reread.NewWatcher(slog.New(slog.DiscardHandler)), "gRPC", tt.files)
			if err != nil {
				t.Fatal(err)
			}
			o := options()
			o.GRPC.TLS = opened.Server(tt.san)
			log := &testenv.Log{}
			o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			s := start(t, o)
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

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rls.sock")
	o := options()
	o.GRPC.UnixSocket = path

	// A socket on which nobody listens, as a process that was killed leaves it.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()

	s := start(t, o)
	if err := call(t, s.dial(t)); err != nil {
		t.Error(err)
	}
	if _, err := server.New(o); err == nil {
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

func TestFileAtThePathOfAUnixSocketIsKept(t *testing.T) {
	o := options()
	o.GRPC.UnixSocket = filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(o.GRPC.UnixSocket, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(o); err == nil || !strings.Contains(err.Error(), "precious: a file that is not a socket is there") {
		t.Error(err)
	}
	if _, err := os.Stat(o.GRPC.UnixSocket); err != nil {
		t.Error(err)
	}
}

func TestUnixSocketWithALongPath(t *testing.T) {
	o := options()
	o.GRPC.UnixSocket = filepath.Join(t.TempDir(), strings.Repeat("a", 108))
	_, err := server.New(o)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("path of %d bytes, want at most 10", len(o.GRPC.UnixSocket))) {
		t.Errorf("got %v", err)
	}
}

// at makes a server listen where another one does.
func at(s *running) server.Options {
	o := options()
	o.GRPC.Address = s.Addr("gRPC").String()
	for i := range o.HTTP {
		o.HTTP[i].Address = s.Addr(o.HTTP[i].Name).String()
	}
	return o
}

// With SharePorts a second process listens on the same ports before the first
// one ends.
func TestPortsAreShared(t *testing.T) {
	o := options()
	o.SharePorts = true
	first := start(t, o)
	o = at(first)
	o.SharePorts = true
	second := start(t, o)
	conn := second.dial(t)
	if err := call(t, conn); err != nil {
		t.Error(err)
	}
	first.stop(t)
	if err := call(t, conn); err != nil {
		t.Errorf("when the first one has ended: %v", err)
	}
	if code, _ := get(t, second.Addr("debug"), "/rlconfig"); code != 200 {
		t.Errorf("/rlconfig when the first one has ended: %d", code)
	}
}

// Ports are shared only if both processes say so.
func TestPortsAreNotShared(t *testing.T) {
	for _, one := range []bool{false, true} {
		o := options()
		o.SharePorts = one
		first := start(t, o)
		o = at(first)
		o.SharePorts = !one
		if _, err := server.New(o); !errors.Is(err, server.ErrPortInUse) {
			t.Errorf("only the second process shares is %v: %v", !one, err)
		}
		o.SharePorts = false
		if _, err := server.New(o); !errors.Is(err, server.ErrPortInUse) {
			t.Errorf("the second process does not share: %v", err)
		}
	}
}

func TestListenersCanBeOff(t *testing.T) {
	o := options()
	o.GRPC, o.HTTP = nil, o.HTTP[1:]
	s := start(t, o)
	if s.Addr("gRPC") != nil || s.Addr("HTTP") != nil || s.Addr("debug") == nil {
		t.Errorf("gRPC on %v, HTTP on %v, debug on %v", s.Addr("gRPC"), s.Addr("HTTP"), s.Addr("debug"))
	}
}
