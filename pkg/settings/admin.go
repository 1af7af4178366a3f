package settings

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Admin says where and how the admin API is served.
type Admin struct {
	Host string `env:"HOST" default:"127.0.0.1" help:"Address of the admin listener."`
	Port int    `env:"PORT" default:"6071" min:"0" max:"65535" help:"Port of the API and the page; 0: any free one."`
	UDS  string `env:"UDS" help:"Unix socket for the admin API. Only the process's user can open it, and may write without a token."`

	TokenFile string `env:"TOKEN_FILE" help:"File of lines NAME ROLE TOKEN: ROLE is read or write, TOKEN at least 16 bytes. Reread on change. Without it there is no listener."`

	UseTLS          bool   `env:"USE_TLS" default:"false" help:"Serve the admin API over TLS."`
	TLSCert         string `name:"tls-cert" env:"TLS_CERT" help:"Certificate chain (PEM)."`
	TLSKey          string `name:"tls-key" env:"TLS_KEY" help:"Its key (PEM)."`
	ClientTLSCACert string `name:"client-tls-cacert" env:"CLIENT_TLS_CACERT" help:"CAs of client certificates (PEM); if set, every client needs one besides its token."`
	ClientTLSSAN    string `name:"client-tls-san" env:"CLIENT_TLS_SAN" help:"Required DNS name of client certificates."`

	AllowedHosts []string `env:"ALLOWED_HOSTS" help:"Names (HTTP's Host, without port) that clients may use besides localhost, the machine's addresses, ADMIN_HOST and ADMIN_FLEET's."`

	Fleet          []string `env:"FLEET" help:"Admin addresses of the replicas, with or without this one: HOST:PORT,HOST:PORT. A name stands for all its addresses, looked up every 10s; the last answer stays."`
	FleetTLSCACert string   `name:"fleet-tls-cacert" env:"FLEET_TLS_CACERT" help:"CAs of replicas (PEM). A replica's certificate must be of them and for a name of this one's; without the setting, be this one's."`
}

// Installation tells the installations of a company apart.
type Installation struct {
	Name string `env:"NAME" help:"Name of this installation on the page and in /v1/status; at most 64 characters."`
}

func (i *Installation) conflicts() (wrong Errors) {
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	wrong.require(utf8.RuneCountInString(i.Name) <= 64 && !strings.ContainsFunc(i.Name, bad), "INSTALLATION_NAME", i.Name, "at most 64 characters, none of them a control character")
	return wrong
}

// Loopback reports whether the listener is for clients on the same machine only.
func (a *Admin) Loopback() bool {
	addr, err := netip.ParseAddr(a.Host)
	return a.Host == "localhost" || err == nil && addr.IsLoopback()
}

// Replicas are the elements of Fleet without spaces around them, and without empty ones.
func (a *Admin) Replicas() (all []string) {
	for _, replica := range a.Fleet {
		if replica = strings.TrimSpace(replica); replica != "" {
			all = append(all, replica)
		}
	}
	return all
}

// Hosts are the names under which clients may ask the admin API, in lower case.
func (a *Admin) Hosts() []string {
	var hosts []string
	names := append([]string{a.Host}, a.AllowedHosts...)
	for _, replica := range a.Replicas() {
		host, _, _ := net.SplitHostPort(replica)
		names = append(names, host)
	}
	for _, name := range names {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

func (a *Admin) conflicts() (wrong Errors) {
	for _, name := range a.AllowedHosts {
		name = strings.TrimSpace(name)
		_, err := netip.ParseAddr(name)
		isName := !strings.ContainsAny(name, "*/:@[] ")
		wrong.require(isName || err == nil, "ADMIN_ALLOWED_HOSTS", name, "names such as rls.example.com, without a scheme, a port or a wildcard")
	}
	for _, replica := range a.Replicas() {
		host, port, err := net.SplitHostPort(replica)
		number, wrongPort := strconv.ParseUint(port, 10, 16)
		isName := host != "" && !strings.ContainsAny(host, "*/@ ")
		wrong.require(err == nil && isName && wrongPort == nil && number > 0, "ADMIN_FLEET", replica, "HOST:PORT, such as rls-headless:6071")
	}
	wrong.require(len(a.Replicas()) == 0 || a.TokenFile != "", "ADMIN_TOKEN_FILE", "", "a file, because ADMIN_FLEET is set, and replicas ask each other with the tokens of callers")
	if len(a.Replicas()) == 0 || !a.UseTLS {
		wrong.require(a.FleetTLSCACert == "", "ADMIN_FLEET_TLS_CACERT", a.FleetTLSCACert, "set together with ADMIN_FLEET and ADMIN_USE_TLS=true")
	}
	if a.UseTLS {
		wrong.require(a.TLSCert != "", "ADMIN_TLS_CERT", "", "a file, because ADMIN_USE_TLS is true")
		wrong.require(a.TLSKey != "", "ADMIN_TLS_KEY", "", "a file, because ADMIN_USE_TLS is true")
		wrong.require(a.TokenFile != "", "ADMIN_TOKEN_FILE", "", "a file, because ADMIN_USE_TLS is true, and the admin listener is closed without tokens")
	} else {
		wrong.require(a.ClientTLSCACert == "", "ADMIN_CLIENT_TLS_CACERT", a.ClientTLSCACert, "set together with ADMIN_USE_TLS=true")
	}
	wrong.require(a.ClientTLSSAN == "" || a.ClientTLSCACert != "", "ADMIN_CLIENT_TLS_SAN", a.ClientTLSSAN, "set together with ADMIN_CLIENT_TLS_CACERT")
	return wrong
}
