package main

import (
	"fmt"
	"log/slog"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/combine"
	"example.org/rls/pkg/backends/deadline"
	"example.org/rls/pkg/backends/denycache"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/presence"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/split"
	"example.org/rls/pkg/certs"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/settings"
)

// backend opens a store. It does not wait for a server.
type backend func(*settings.Settings, *certs.Watcher, *metrics.Metrics, *slog.Logger) (backends.Store, error)

// stores are the backends by the names that BACKEND_TYPE takes.
var stores = map[string]backend{
	"memory":   openMemory,
	"redis":    openRedis,
	"memcache": openMemcached,
}

func openBackend(s *settings.Settings, watch *certs.Watcher, measure *metrics.Metrics, log *slog.Logger) (backends.Store, error) {
	store, err := stores[s.Backend.BackendType](s, watch, measure, log)
	if err != nil {
		return nil, fmt.Errorf("open backend: %w", err)
	}
	if !s.Metrics.DisableStats {
		store = measure.Store(store, s.Backend.BackendType)
	}
	if size := s.Backend.LocalCacheSizeInBytes; size > 0 && s.Backend.BackendType != "memory" {
		return denycache.New(store, size)
	}
	return store, nil
}

func openMemory(s *settings.Settings, _ *certs.Watcher, measure *metrics.Metrics, _ *slog.Logger) (backends.Store, error) {
	store, err := memory.New(memory.Options{MaxKeys: s.Memory.MaxKeys})
	if err != nil {
		return nil, err
	}
	measure.Watch(store)
	return store, nil
}

func openRedis(s *settings.Settings, watch *certs.Watcher, _ *metrics.Metrics, log *slog.Logger) (backends.Store, error) {
	goredis.SetLogger(redisLog{log})
	main, err := openRedisServer(s, watch, "REDIS_URL", s.Redis.RedisServer, &presence.Watch{Log: log, Role: "main"})
	if err != nil || !s.Redis.Persecond {
		return main, err
	}
	perSecond, err := openRedisServer(s, watch, "REDIS_PERSECOND_URL", s.RedisPerSecond, &presence.Watch{Log: log, Role: "per-second"})
	if err != nil {
		_ = main.Close()
		return nil, err
	}
	return split.New(main, perSecond, max(s.Redis.Timeout, s.RedisPerSecond.Timeout))
}

func openRedisServer(s *settings.Settings, watch *certs.Watcher, name string, r settings.RedisServer, servers *presence.Watch) (backends.Store, error) {
	o := redis.Options{
		Type:             r.Type,
		SocketType:       r.SocketType,
		URL:              r.URL,
		Auth:             r.Auth,
		SentinelAuth:     r.SentinelAuth,
		PoolSize:         r.PoolSize,
		Timeout:          r.Timeout,
		ExpirationJitter: jitter(s),
		Watch:            servers,
	}
	if r.Type != "SINGLE" {
		o.SocketType = "tcp" // REDIS_SOCKET_TYPE is for a single server
	}
	if r.UseTLS() {
		var err error
		files := certs.Files{Cert: s.Redis.TLSClientCert, Key: s.Redis.TLSClientKey, CA: s.Redis.TLSCACert}
		if o.TLS, err = storeTLS(watch, "REDIS_TLS_", files, s.Redis.TLSSkipHostnameVerification); err != nil {
			return nil, err
		}
	}
	store, err := redis.Open(o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return remote(store, r.Timeout)
}

func openMemcached(s *settings.Settings, watch *certs.Watcher, _ *metrics.Metrics, log *slog.Logger) (backends.Store, error) {
	m := s.Memcache
	o := memcached.Options{
		Servers:          m.HostPort,
		SRV:              m.SRV,
		SRVRefresh:       m.SRVRefresh,
		Timeout:          m.Timeout,
		MaxIdleConns:     m.MaxIdleConns,
		ExpirationJitter: jitter(s),
		Watch:            &presence.Watch{Log: log, Role: "main"},
	}
	if m.TLS {
		var err error
		files := certs.Files{Cert: m.TLSClientCert, Key: m.TLSClientKey, CA: m.TLSCACert}
		if o.TLS, err = storeTLS(watch, "MEMCACHE_TLS_", files, m.TLSSkipHostnameVerification); err != nil {
			return nil, err
		}
	}
	store, err := memcached.Open(o)
	if err != nil {
		return nil, err
	}
	return remote(store, m.Timeout)
}

func jitter(s *settings.Settings) time.Duration {
	return time.Duration(s.Backend.ExpirationJitterMaxSeconds) * time.Second
}

// remote adds what every store across a network wants: operations on a hot key
// merged, and waits that end in time.
func remote(store backends.Store, timeout time.Duration) (backends.Store, error) {
	merged, err := combine.New(store, timeout)
	if err != nil {
		return nil, err
	}
	return deadline.New(merged, timeout)
}
