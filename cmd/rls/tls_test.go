package main

import (
	"crypto/tls"
	"net"
	"os"
	"testing"

	"example.org/rls/internal/testenv"
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

func TestClientCertificateIsReadAgain(t *testing.T) {
	certs := testenv.Certs(t)
	dir := t.TempDir()
	install := func(cert, key string) {
		for from, to := range map[string]string{cert: "crt", key: "key"} {
			content, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(dir+"/"+to, content, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	install(certs.ClientCertFile, certs.ClientKeyFile)
	client, err := clientTLS(dir+"/crt", dir+"/key", certs.CAFile, false)
	if err != nil {
		t.Fatal(err)
	}
	client.ServerName = "localhost"
	server := certs.Server.Clone()
	server.ClientAuth = tls.RequireAndVerifyClientCert
	first := shown(t, server, client)
	install(certs.ServerCertFile, certs.ServerKeyFile)
	second := shown(t, server, client)
	if string(second) == string(first) {
		t.Error("the new certificate is not shown")
	}
	install(certs.ClientCertFile, certs.ServerKeyFile) // of different pairs
	if string(shown(t, server, client)) != string(second) {
		t.Error("the last good certificate is not shown while the files are wrong")
	}
}
