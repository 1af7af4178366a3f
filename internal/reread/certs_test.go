package reread_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/reread"
	"example.org/rls/internal/testenv"
)

const deadline = 10 * time.Second

// watched is a set of files with a watcher that runs until the test ends.
type watched struct {
	*reread.Watcher
	reread.CertFiles
	log *testenv.Log
}

func watch(t *testing.T) *watched {
	t.Helper()
	dir := t.TempDir()
	w := &watched{
		CertFiles: reread.CertFiles{Cert: filepath.Join(dir, "crt"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")},
		log:       &testenv.Log{},
	}
	w.Watcher = reread.NewWatcher(slog.New(slog.NewTextHandler(w.log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

// count counts the occurrences of text in the log.
func (w *watched) count(text string) int { return strings.Count(w.log.String(), text) }

// install copies the files to where the watcher looks for them.
func (w *watched) install(t *testing.T, from reread.CertFiles) {
	t.Helper()
	for from, to := range map[string]string{from.Cert: w.Cert, from.Key: w.Key, from.CA: w.CA} {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func serverFiles(c *testenv.TLS) reread.CertFiles {
	return reread.CertFiles{Cert: c.ServerCertFile, Key: c.ServerKeyFile, CA: c.CAFile}
}

func clientFiles(c *testenv.TLS) reread.CertFiles {
	return reread.CertFiles{Cert: c.ClientCertFile, Key: c.ClientKeyFile, CA: c.CAFile}
}

// handshake returns whether the two sides accept each other.
func handshake(t *testing.T, server, client *tls.Config) bool {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan error, 1)
	go func() {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: deadline}, "tcp", l.Addr().String(), client)
		if err == nil {
			defer conn.Close()
			_ = conn.SetReadDeadline(time.Now().Add(deadline))
			_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 a client learns only now that it is refused
		}
		asked <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, served := conn.Write([]byte{0})
	_ = conn.Close()
	return <-asked == nil && served == nil
}

// mutual is the server's side of TLS of a set of certificates that asks each
// client for one.
func mutual(c *testenv.TLS) *tls.Config {
	config := c.Server.Clone()
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config
}

// A renewed certificate and a renewed CA count for the next connection, of a
// server and of a client alike.
func TestRenewedFilesCount(t *testing.T) {
	t.Parallel()
	old, renewed := testenv.Certs(t), testenv.Certs(t)
	for side, tt := range map[string]struct {
		files func(*testenv.TLS) reread.CertFiles
		// accepts reports whether this side and the other one, whose
		// certificates are given, accept each other.
		accepts func(*testing.T, *reread.Certs, *testenv.TLS) bool
	}{
		"server": {serverFiles, func(t *testing.T, c *reread.Certs, other *testenv.TLS) bool {
			return handshake(t, c.Server(""), other.Client)
		}},
		"client": {clientFiles, func(t *testing.T, c *reread.Certs, other *testenv.TLS) bool {
			return handshake(t, mutual(other), c.Client())
		}},
	} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			w := watch(t)
			w.install(t, tt.files(old))
			c, err := reread.OpenCerts(w.Watcher, side, w.CertFiles)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.accepts(t, c, old) || tt.accepts(t, c, renewed) {
				t.Fatal("the first files do not count")
			}
			w.install(t, tt.files(renewed))
			testenv.Eventually(t, deadline, func() bool { return tt.accepts(t, c, renewed) }, "the renewed files count")
			if tt.accepts(t, c, old) {
				t.Error("the old files count too")
			}
		})
	}
}

// Files that cannot be used are logged once for each of their contents and
// change nothing.
func TestFilesThatCannotBeUsedChangeNothing(t *testing.T) {
	t.Parallel()
	const refused, again = "changed files refused, their last good contents stay in force", "changed files are in force"
	good, other := testenv.Certs(t), testenv.Certs(t)
	for name, spoil := range map[string]func(*testing.T, *watched){
		"the key of another certificate": func(t *testing.T, w *watched) {
			w.install(t, reread.CertFiles{Cert: other.ClientCertFile, Key: good.ClientKeyFile, CA: other.CAFile})
		},
		"no certificate in the CA file": func(t *testing.T, w *watched) {
			w.install(t, reread.CertFiles{Cert: other.ClientCertFile, Key: other.ClientKeyFile, CA: other.ClientKeyFile})
		},
		"a file that is gone": func(t *testing.T, w *watched) {
			if err := os.Remove(w.Key); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t)
			w.install(t, clientFiles(good))
			c, err := reread.OpenCerts(w.Watcher, "REDIS_TLS", w.CertFiles)
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, w)
			testenv.Eventually(t, deadline, func() bool { return w.count(refused) > 0 }, "the refusal is logged")
			// When the same watcher has noticed a change of other files, it has
			// read the bad ones again, twice.
			beside := watch(t)
			beside.install(t, clientFiles(good))
			if _, err := reread.OpenCerts(w.Watcher, "beside", beside.CertFiles); err != nil {
				t.Fatal(err)
			}
			beside.install(t, clientFiles(other))
			testenv.Eventually(t, deadline, func() bool { return w.count("for=beside") > 0 }, "a change beside is noticed")
			if !handshake(t, mutual(good), c.Client()) {
				t.Error("the last good certificates do not count any more")
			}
			if w.count("for=REDIS_TLS") != 1 || w.count(w.Cert)+w.count(w.CA)+w.count(w.Key) == 0 {
				t.Errorf("the log does not name the setting and the file:\n%s", w.log)
			}
			// Good files are used after bad ones, too.
			w.install(t, clientFiles(other))
			testenv.Eventually(t, deadline, func() bool { return handshake(t, mutual(other), c.Client()) }, "files that were mended count")
			if w.count(refused) != 1 || w.count(again+`" for=REDIS_TLS`) != 1 {
				t.Errorf("want one refusal and one success in the log:\n%s", w.log)
			}
		})
	}
}

func TestClientNameIsChecked(t *testing.T) {
	c := testenv.Certs(t)
	opened, err := reread.OpenCerts(reread.NewWatcher(slog.New(slog.DiscardHandler)), "gRPC", serverFiles(c))
	if err != nil {
		t.Fatal(err)
	}
	for name, accepted := range map[string]bool{"": true, "localhost": true, "other.example": false} {
		if got := handshake(t, opened.Server(name), c.Client); got != accepted {
			t.Errorf("name %q: accepted is %v", name, got)
		}
	}
	anonymous := &tls.Config{RootCAs: c.Client.RootCAs, MinVersion: tls.VersionTLS12}
	if handshake(t, opened.Server(""), anonymous) {
		t.Error("a client without a certificate is accepted")
	}
}

// With AnyName the server's certificate may be for another name, but must come
// from the CA.
func TestAnyName(t *testing.T) {
	c, stranger := testenv.Certs(t), testenv.Certs(t)
	opened, err := reread.OpenCerts(reread.NewWatcher(slog.New(slog.DiscardHandler)), "REDIS_TLS", reread.CertFiles{CA: c.CAFile})
	if err != nil {
		t.Fatal(err)
	}
	client := opened.Client()
	client.ServerName = "other.example"
	if handshake(t, c.Server, client) {
		t.Error("a server of another name is accepted")
	}
	reread.AnyName(client)
	if !handshake(t, c.Server, client) {
		t.Error("with AnyName a server of another name is refused")
	}
	if handshake(t, stranger.Server, client) {
		t.Error("a server of another CA is accepted")
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	c := testenv.Certs(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string]reread.CertFiles{
		"open /missing.pem: no such file":                                   {Cert: "/missing.pem", Key: c.ServerKeyFile},
		"load certificate " + c.ServerCertFile + " with " + c.ClientKeyFile: {Cert: c.ServerCertFile, Key: c.ClientKeyFile},
		"load CAs: no certificate in " + empty:                              {CA: empty},
	} {
		if _, err := reread.OpenCerts(reread.NewWatcher(slog.New(slog.DiscardHandler)), "gRPC", files); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// signed writes a certificate for a name, of an authority or of itself, and its key.
func signed(t *testing.T, name string, authority *tls.Certificate) (files reread.CertFiles, pair *tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: authority == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, crypto.Signer(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey.(crypto.Signer)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files = reread.CertFiles{Cert: filepath.Join(t.TempDir(), "crt"), Key: filepath.Join(t.TempDir(), "key")}
	for path, block := range map[string]*pem.Block{files.Cert: {Type: "CERTIFICATE", Bytes: der}, files.Key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return files, &loaded
}

// A peer shows the same certificate, or another one of the CA for the same name.
func TestPeer(t *testing.T) {
	t.Parallel()
	caFiles, ca := signed(t, "ca", nil)
	_, stranger := signed(t, "ca", nil)
	ownFiles, own := signed(t, "rls.example", ca)
	_, renewed := signed(t, "rls.example", ca)
	_, wide := signed(t, "*.example", ca)
	_, another := signed(t, "other.example", ca)
	_, foreign := signed(t, "rls.example", stranger)
	_, self := signed(t, "rls.example", nil)
	for name, test := range map[string]struct {
		shown           *tls.Certificate
		without, withCA bool
	}{
		"the same": {own, true, true}, "renewed": {renewed, false, true}, "a wildcard for the name": {wide, false, true},
		"another name": {another, false, false}, "another CA": {foreign, false, false}, "of itself": {self, false, false},
	} {
		for file, want := range map[string]bool{"": test.without, caFiles.Cert: test.withCA} {
			files := ownFiles
			files.CA = file
			c, err := reread.OpenCerts(watch(t).Watcher, "peer", files)
			if err != nil {
				t.Fatal(err)
			}
			server := &tls.Config{Certificates: []tls.Certificate{*test.shown}, MinVersion: tls.VersionTLS12}
			if got := handshake(t, server, c.Peer()); got != want {
				t.Errorf("%s, with the CA %q: accepted %v, want %v", name, file, got, want)
			}
		}
	}
}
