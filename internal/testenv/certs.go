package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TLS is a certificate authority with its certificates: a server's certificate
// for 127.0.0.1, ::1 and localhost, and a client's. All files are PEM.
type TLS struct {
	CAFile                        string
	ServerCertFile, ServerKeyFile string
	ClientCertFile, ClientKeyFile string

	// Server shows the server's certificate and accepts clients without a
	// certificate or with one of the authority's.
	Server *tls.Config
	// Client trusts the authority and shows the client's certificate.
	Client *tls.Config
}

// Certs makes a new authority and its certificates, valid for an hour.
func Certs(t testing.TB) *TLS {
	t.Helper()
	dir := t.TempDir()
	authority := issue(t, dir, "ca", nil)
	server := issue(t, dir, "server", authority)
	client := issue(t, dir, "client", authority)
	file := func(name string) string { return filepath.Join(dir, name) }

	pool := x509.NewCertPool()
	pool.AddCert(authority.Leaf)
	return &TLS{
		CAFile:         file("ca.crt"),
		ServerCertFile: file("server.crt"), ServerKeyFile: file("server.key"),
		ClientCertFile: file("client.crt"), ClientKeyFile: file("client.key"),
		Server: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{*server},
			ClientCAs:    pool,
			ClientAuth:   tls.VerifyClientCertIfGiven,
		},
		Client: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{*client},
			RootCAs:      pool,
		},
	}
}

// ForClient returns a copy of Client, for stores that ask for a configuration
// for each connection.
func (c *TLS) ForClient() *tls.Config { return c.Client.Clone() }

// RedisArgs are the arguments with which Redis speaks TLS only, on its port,
// and asks every client for a certificate of the authority.
func (c *TLS) RedisArgs() []string {
	return []string{
		"--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "yes",
		"--tls-ca-cert-file", c.CAFile,
		"--tls-cert-file", c.ServerCertFile,
		"--tls-key-file", c.ServerKeyFile,
	}
}

// MemcachedArgs are the arguments with which Memcached speaks TLS only and
// asks every client for a certificate of the authority.
func (c *TLS) MemcachedArgs() []string {
	const require = "2"
	return []string{
		"--enable-ssl",
		"-o", "ssl_chain_cert=" + c.ServerCertFile,
		"-o", "ssl_key=" + c.ServerKeyFile,
		"-o", "ssl_ca_cert=" + c.CAFile,
		"-o", "ssl_verify_mode=" + require,
	}
}

// issue makes a certificate signed by authority, or an authority if that is nil. It
// writes the files name.crt and name.key into dir.
func issue(t testing.TB, dir, name string, authority *tls.Certificate) *tls.Certificate {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("testenv: issue a certificate for %s: %v", name, err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-time.Hour), // for clocks that differ
		NotAfter:              now.Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		BasicConstraintsValid: true,
	}
	parent, signer := template, any(key)
	if authority == nil {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
	} else {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	check(err)
	cert, err := x509.ParseCertificate(der)
	check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)

	for file, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		check(os.WriteFile(filepath.Join(dir, name+file), pem.EncodeToMemory(block), 0o600))
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}
}
