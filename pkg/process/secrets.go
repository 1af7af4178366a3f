package process

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"example.org/rls/internal/reread"
	"example.org/rls/pkg/settings"
)

// password returns the function that returns "password" or "user:password" for a new connection:
// the content of the file that the setting names, or else text. It is nil if both are "".
func password(watch *reread.Watcher, setting, file, text string) (func() string, error) {
	switch {
	case file == "" && text == "":
		return nil, nil
	case file == "":
		return func() string { return text }, nil
	}
	return reread.File(watch, setting, file, func(content string) (string, error) {
		content = strings.TrimRight(content, "\r\n")
		switch {
		case content == "" || strings.HasSuffix(content, ":") && strings.Count(content, ":") == 1:
			return "", errors.New("has no password: want a password, or user:password")
		case strings.ContainsAny(content, "\r\n"):
			return "", errors.New("has several lines: want one with a password, or user:password")
		}
		return content, nil
	})
}

// tlsUse is one use of TLS.
type tlsUse struct {
	name     string // in the dry run
	part     string // its name in the log and in events
	settings string // the names of the settings that name the files
	used     bool
	files    reread.CertFiles

	own *reread.Certs
	err error // why there are none
}

// open reads the files, if they are used.
func (u *tlsUse) open(watch *reread.Watcher) error {
	if !u.used {
		u.files = reread.CertFiles{}
	}
	if u.own, u.err = reread.OpenCerts(watch, u.part, u.files); u.err != nil {
		u.err = fmt.Errorf("%s: %w", u.settings, u.err)
	}
	return u.err
}

// client returns the function that returns the configuration for a new connection to a server.
// Certificates must have serverName, or the name of the host if that is "", or may have any name.
func (u *tlsUse) client(serverName string, anyName bool) (func() *tls.Config, error) {
	return func() *tls.Config {
		config := u.own.Client()
		config.ServerName = serverName
		if anyName {
			reread.AnyName(config)
		}
		return config
	}, u.err
}

// tlsUses are the uses of TLS.
type tlsUses struct{ grpc, admin, fleet, xds, tables, redis, memcached tlsUse }

func (u *tlsUses) all() []*tlsUse {
	return []*tlsUse{&u.grpc, &u.admin, &u.fleet, &u.xds, &u.tables, &u.redis, &u.memcached}
}

func tlsOf(s *settings.Settings) tlsUses {
	g, a, x, t, r, m := &s.GRPC, &s.Admin, &s.XDS, &s.Tables, &s.Redis, &s.Memcache
	redisUsed := s.Backend.BackendType == inRedis && (r.UseTLS() || r.Persecond && s.RedisPerSecond.UseTLS())
	server := func(name, part, settings string, used bool, files reread.CertFiles) tlsUse {
		return tlsUse{name: name, part: part, settings: settings, used: used, files: files}
	}
	client := func(name, settings string, used bool, files reread.CertFiles) tlsUse {
		return server(name, settings, settings, used, files)
	}
	return tlsUses{
		grpc:      server("GRPC", "gRPC", "GRPC_*_TLS_*", s.Server.UseGRPC && g.ServerUseTLS, reread.CertFiles{Cert: g.ServerTLSCert, Key: g.ServerTLSKey, CA: g.ClientCA()}),
		admin:     server("ADMIN", "admin", "ADMIN_*TLS_*", a.UseTLS, reread.CertFiles{Cert: a.TLSCert, Key: a.TLSKey, CA: a.ClientTLSCACert}),
		fleet:     server("ADMIN_FLEET", "admin fleet", "ADMIN_*TLS_*", a.UseTLS && len(a.Replicas()) > 0, reread.CertFiles{Cert: a.TLSCert, Key: a.TLSKey, CA: a.FleetTLSCACert}),
		xds:       client("CONFIG_GRPC_XDS", "CONFIG_GRPC_XDS_*_TLS_*", s.Rules.OverXDS() && x.ServerUseTLS, reread.CertFiles{Cert: x.ClientTLSCert, Key: x.ClientTLSKey, CA: x.ServerTLSCACert}),
		tables:    client("TABLE", "TABLE_TLS_*", t.TLSClientCert != "" || t.TLSCACert != "", reread.CertFiles{Cert: t.TLSClientCert, Key: t.TLSClientKey, CA: t.TLSCACert}),
		redis:     client("REDIS", "REDIS_TLS_*", redisUsed, reread.CertFiles{Cert: r.TLSClientCert, Key: r.TLSClientKey, CA: r.TLSCACert}),
		memcached: client("MEMCACHE", "MEMCACHE_TLS_*", s.Backend.BackendType == inMemcached && m.TLS, reread.CertFiles{Cert: m.TLSClientCert, Key: m.TLSClientKey, CA: m.TLSCACert}),
	}
}

// openCertificates reads the certificates, keys and CAs of all parts that use TLS.
func (p *process) openCertificates(context.Context) error {
	var errs []error
	for _, use := range p.tls.all() {
		errs = append(errs, use.open(p.watch))
	}
	return errors.Join(errs...)
}

// xdsHeaders returns the function that returns the headers for a new stream.
func xdsHeaders(watch *reread.Watcher, x *settings.XDS) (func() map[string]string, error) {
	if x.ClientAdditionalHeadersFile == "" {
		headers, _ := settings.Headers(x.ClientAdditionalHeaders)
		return func() map[string]string { return headers }, nil
	}
	const setting = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS_FILE"
	return reread.File(watch, setting, x.ClientAdditionalHeadersFile, func(content string) (map[string]string, error) {
		headers, ok := settings.Headers(strings.ReplaceAll(content, "\n", ","))
		if !ok || len(headers) == 0 {
			return nil, errors.New("has no headers, or wrong ones: want " + settings.WantHeaders)
		}
		return headers, nil
	})
}
