package process

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"

	"example.org/rls/pkg/reread"
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
	return openSecret(watch, setting, file, func(content string) (string, error) {
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

// tlsFiles are the files of one use of TLS.
type tlsFiles struct {
	name     string // of the use, in the dry run
	settings string // the names of the settings that name the files
	used     bool
	reread.CertFiles
}

// open reads the files. part is their name in the log and in events.
func (f *tlsFiles) open(watch *reread.Watcher, part string) (*reread.Certs, error) {
	own, err := reread.OpenCerts(watch, part, f.CertFiles)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.settings, err)
	}
	return own, nil
}

// tlsUses are the uses of TLS.
type tlsUses struct{ grpc, admin, fleet, xds, tables, redis, memcached tlsFiles }

func tlsOf(s *settings.Settings) tlsUses {
	g, a, x, t, r, m := &s.GRPC, &s.Admin, &s.XDS, &s.Tables, &s.Redis, &s.Memcache
	redisUsed := s.Backend.BackendType == inRedis && (r.UseTLS() || r.Persecond && s.RedisPerSecond.UseTLS())
	return tlsUses{
		grpc:      tlsFiles{"GRPC", "GRPC_*_TLS_*", s.Server.UseGRPC && g.ServerUseTLS, reread.CertFiles{Cert: g.ServerTLSCert, Key: g.ServerTLSKey, CA: g.ClientCA()}},
		admin:     tlsFiles{"ADMIN", "ADMIN_*TLS_*", a.UseTLS, reread.CertFiles{Cert: a.TLSCert, Key: a.TLSKey, CA: a.ClientTLSCACert}},
		fleet:     tlsFiles{"ADMIN_FLEET", "ADMIN_*TLS_*", a.UseTLS && len(a.Replicas()) > 0, reread.CertFiles{Cert: a.TLSCert, Key: a.TLSKey, CA: a.FleetTLSCACert}},
		xds:       tlsFiles{"CONFIG_GRPC_XDS", "CONFIG_GRPC_XDS_*_TLS_*", s.Rules.OverXDS() && x.ServerUseTLS, reread.CertFiles{Cert: x.ClientTLSCert, Key: x.ClientTLSKey, CA: x.ServerTLSCACert}},
		tables:    tlsFiles{"TABLE", "TABLE_TLS_*", t.TLSClientCert != "" || t.TLSCACert != "", reread.CertFiles{Cert: t.TLSClientCert, Key: t.TLSClientKey, CA: t.TLSCACert}},
		redis:     tlsFiles{"REDIS", "REDIS_TLS_*", redisUsed, reread.CertFiles{Cert: r.TLSClientCert, Key: r.TLSClientKey, CA: r.TLSCACert}},
		memcached: tlsFiles{"MEMCACHE", "MEMCACHE_TLS_*", s.Backend.BackendType == inMemcached && m.TLS, reread.CertFiles{Cert: m.TLSClientCert, Key: m.TLSClientKey, CA: m.TLSCACert}},
	}
}

// clientTLS opens the files for connections to servers. The function returns the configuration
// for a new connection. Certificates must have serverName, or the name of the host if that is
// "", or may have any name.
func clientTLS(watch *reread.Watcher, files tlsFiles, serverName string, anyName bool) (func() *tls.Config, error) {
	own, err := files.open(watch, files.settings)
	if err != nil {
		return nil, err
	}
	return func() *tls.Config {
		config := own.Client()
		config.ServerName = serverName
		if anyName {
			reread.AnyName(config)
		}
		return config
	}, nil
}

// xdsHeaders returns the function that returns the headers for a new stream.
func xdsHeaders(watch *reread.Watcher, x *settings.XDS) (func() map[string]string, error) {
	if x.ClientAdditionalHeadersFile == "" {
		headers, _ := settings.Headers(x.ClientAdditionalHeaders)
		return func() map[string]string { return headers }, nil
	}
	const setting = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS_FILE"
	return openSecret(watch, setting, x.ClientAdditionalHeadersFile, func(content string) (map[string]string, error) {
		headers, ok := settings.Headers(strings.ReplaceAll(content, "\n", ","))
		if !ok || len(headers) == 0 {
			return nil, errors.New("has no headers, or wrong ones: want " + settings.WantHeaders)
		}
		return headers, nil
	})
}

// openSecret opens the file that the setting names, and returns a function that returns its
// value now. Errors name the setting and the file, in the log too when the file changes.
func openSecret[T any](watch *reread.Watcher, setting, file string, parse func(content string) (T, error)) (func() T, error) {
	opened, err := reread.Open(watch, setting, []string{file}, func(contents []string) (T, error) {
		value, err := parse(contents[0])
		if err != nil {
			return value, fmt.Errorf("%s %w", file, err)
		}
		return value, nil
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return opened.Now, nil
}

// KeySecret is the secret of CACHE_KEY_HASH, nil if it is false. It reads
// CACHE_KEY_HASH_SECRET_FILE if that is set.
func KeySecret(b *settings.Backend) ([]byte, error) {
	file := b.CacheKeyHashSecretFile
	if file == "" {
		return []byte(b.CacheKeyHashSecret), nil
	}
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CACHE_KEY_HASH_SECRET_FILE: %w", err)
	}
	if secret = bytes.TrimRight(secret, "\r\n"); len(secret) < settings.MinKeySecret {
		return nil, fmt.Errorf("CACHE_KEY_HASH_SECRET_FILE %s has a secret of %d bytes: want at least %d", file, len(secret), settings.MinKeySecret)
	}
	return secret, nil
}
