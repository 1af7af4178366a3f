package main

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/settings"
)

// shown is the client certificate that a server sees on a new connection.
func shown(t *testing.T, server, client *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _ = tls.Client(far, client).Handshake() }()
	conn := tls.Server(near, server)
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	certs := conn.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		t.Fatal("no client certificate")
	}
	return certs[0].Raw
}

// install copies files to where a program reads them.
func install(t *testing.T, at tlsFiles, files tlsFiles) {
	t.Helper()
	for from, to := range map[string]string{files.cert: at.cert, files.key: at.key, files.ca: at.ca} {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestClientCertificateIsReadAgain(t *testing.T) {
	certs := testenv.Certs(t)
	dir := t.TempDir()
	files := tlsFiles{cert: dir + "/crt", key: dir + "/key", ca: dir + "/ca"}
	install(t, files, tlsFiles{certs.ClientCertFile, certs.ClientKeyFile, certs.CAFile})
	var said strings.Builder
	const anyHost = false
	client, err := files.configForStore(anyHost, newLogger(&said, settings.Log{Level: "error", Format: "text"}))
	if err != nil {
		t.Fatal(err)
	}
	client.ServerName = "localhost"
	server := certs.Server.Clone()
	server.ClientAuth = tls.RequireAndVerifyClientCert
	first := shown(t, server, client)
	install(t, files, tlsFiles{certs.ServerCertFile, certs.ServerKeyFile, certs.CAFile})
	second := shown(t, server, client)
	if string(second) == string(first) {
		t.Error("the new certificate is not shown")
	}
	ofDifferentPairs := tlsFiles{certs.ClientCertFile, certs.ServerKeyFile, certs.CAFile}
	install(t, files, ofDifferentPairs)
	if string(shown(t, server, client)) != string(second) {
		t.Error("the last good certificate is not shown while the files are wrong")
	}

	// That is said once, and again for another reason or another time.
	shown(t, server, client)
	wantComplaints(t, &said, 1)
	if err := os.Remove(files.key); err != nil {
		t.Fatal(err)
	}
	shown(t, server, client)
	wantComplaints(t, &said, 2)
	install(t, files, tlsFiles{certs.ServerCertFile, certs.ServerKeyFile, certs.CAFile})
	shown(t, server, client)
	wantComplaints(t, &said, 2)
	install(t, files, ofDifferentPairs)
	shown(t, server, client)
	wantComplaints(t, &said, 3)
	if !strings.Contains(said.String(), files.cert) {
		t.Errorf("does not name the file:\n%s", said.String())
	}
}

func wantComplaints(t *testing.T, said *strings.Builder, want int) {
	t.Helper()
	if got := strings.Count(said.String(), "new certificates refused, the last good ones stay in force"); got != want {
		t.Errorf("said %d times, want %d:\n%s", got, want, said.String())
	}
}

// The certificates for a management server follow their files too, CAs
// included.
func TestCertificatesForTheManagementServer(t *testing.T) {
	old, renewed := testenv.Certs(t), testenv.Certs(t)
	dir := t.TempDir()
	files := tlsFiles{cert: dir + "/crt", key: dir + "/key", ca: dir + "/ca"}
	x := &settings.XDS{ClientTLSCert: files.cert, ClientTLSKey: files.key, ServerTLSCACert: files.ca, ServerTLSSAN: "localhost"}
	var said strings.Builder
	log := newLogger(&said, settings.Log{Level: "error", Format: "text"})
	if _, err := xdsTLS(x, log); err == nil || !strings.Contains(err.Error(), files.cert) {
		t.Errorf("without files: %v", err)
	}
	install(t, files, tlsFiles{old.ClientCertFile, old.ClientKeyFile, old.CAFile})
	load, err := xdsTLS(x, log)
	if err != nil {
		t.Fatal(err)
	}
	connect := func(to *testenv.TLS) {
		t.Helper()
		server := to.Server.Clone()
		server.ClientAuth = tls.RequireAndVerifyClientCert
		client, err := load()
		if err != nil {
			t.Fatal(err)
		}
		shown(t, server, client)
	}
	connect(old)
	install(t, files, tlsFiles{renewed.ClientCertFile, old.ClientKeyFile, old.CAFile})
	connect(old)
	connect(old)
	wantComplaints(t, &said, 1)
	install(t, files, tlsFiles{renewed.ClientCertFile, renewed.ClientKeyFile, renewed.CAFile})
	connect(renewed)
}
