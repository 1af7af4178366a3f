package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/denycache"
	"example.org/rls/pkg/backends/lease"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/certs"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/tracing"
)

// backend describes one value of BACKEND_TYPE.
type backend struct {
	// open opens the stores that count. It does not wait for servers.
	open func(*opening) (main, perSecond stack.Tier, err error)
	// system is what OpenTelemetry calls its servers; "" if it has none.
	system string
	// storedKey is the name under which it keeps a key; nil if that is the key.
	storedKey func(key string) string
	// shared: all processes with the same settings count in the same cells.
	shared bool
	// health returns how the process's health follows the store's; nil stands for
	// the zero StoreWatch.
	health func(*settings.Settings) server.StoreWatch
}

const (
	inMemory    = "memory"
	inRedis     = "redis"
	inMemcached = "memcache"
)

// backendTypes are the backends by the values of BACKEND_TYPE.
var backendTypes = map[string]backend{
	inMemory:    {open: openMemory},
	inRedis:     {open: openRedis, system: "redis", storedKey: redis.StoredKey, shared: true, health: redisHealth},
	inMemcached: {open: openMemcached, system: "memcached", storedKey: memcached.StoredKey, shared: true},
}

func backendOf(s *settings.Settings) backend { return backendTypes[s.Backend.BackendType] }

// defaultBackend is the default of BACKEND_TYPE for a program that was started
// by that name: as a replacement of envoyproxy/ratelimit it counts in Redis.
func defaultBackend(name string) string {
	if name == "ratelimit" {
		return inRedis
	}
	return inMemory
}

// opening has the arguments for opening stores.
type opening struct {
	*settings.Settings
	watch   *reread.Watcher
	measure *metrics.Metrics
	tracer  *tracing.Tracer
	log     *slog.Logger
	watches []*breaker.Watch // of the stores that were opened
}

// openStore opens the stores that BACKEND_TYPE names, and returns their stack.
func openStore(o *opening) (backends.Store, error) {
	b := backendOf(o.Settings)
	main, perSecond, err := b.open(o)
	if err != nil {
		return nil, fmt.Errorf("open backend: %w", err)
	}
	o.measure.Breakers(o.Backend.BackendType, o.watches)
	store, err := stack.Build(stack.Options{
		Main:       main,
		PerSecond:  perSecond,
		Decision:   o.Store.DecisionTimeout,
		LocalCache: o.Backend.LocalCacheSizeInBytes,
		Watch: func(s backends.Store) backends.Store {
			if !o.Metrics.DisableStats {
				s = o.measure.Store(s, o.Backend.BackendType)
			}
			return o.tracer.Store(s, b.system)
		},
		Leases: func(s *lease.Store) { o.measure.Leases(s.Stats) },
	})
	if cache, ok := store.(*denycache.Store); ok {
		o.measure.LocalCache(func() metrics.CacheStats { return metrics.CacheStats(cache.Stats()) })
	}
	return store, err
}

func openMemory(o *opening) (main, perSecond stack.Tier, err error) {
	store, err := memory.New(memory.Options{MaxKeys: o.Memory.MaxKeys})
	if err != nil {
		return main, perSecond, err
	}
	o.measure.Watch(store)
	return stack.Tier{Store: store}, perSecond, nil
}

func openRedis(o *opening) (main, perSecond stack.Tier, err error) {
	goredis.SetLogger(redisLog{o.log})
	if main, err = openRedisServer(o, "REDIS_", "main", o.Redis.RedisServer); err != nil || !o.Redis.Persecond {
		return main, perSecond, err
	}
	if perSecond, err = openRedisServer(o, "REDIS_PERSECOND_", "per-second", o.RedisPerSecond); err != nil {
		_ = main.Store.Close()
	}
	return main, perSecond, err
}

// pools are the names of the connections to a Redis in metrics, by its role.
var pools = map[string]string{"main": "redis_pool", "per-second": "redis_per_second_pool"}

func openRedisServer(s *opening, prefix, role string, r settings.RedisServer) (stack.Tier, error) {
	o := redis.Options{
		Type:             r.Type,
		SocketType:       r.SocketType,
		URL:              r.URL,
		PoolSize:         r.PoolSize,
		Timeout:          r.Timeout,
		ExpirationJitter: s.jitter(),
		Watch:            s.servers(role),
		ClockError:       s.measure.ClockError,
	}
	if r.Type != "SINGLE" {
		o.SocketType = "tcp" // REDIS_SOCKET_TYPE is for a single server
	}
	var err error
	if o.Auth, err = password(s.watch, prefix+"AUTH_FILE", r.AuthFile, r.Auth); err != nil {
		return stack.Tier{}, err
	}
	if o.SentinelAuth, err = password(s.watch, prefix+"SENTINEL_AUTH_FILE", r.SentinelAuthFile, r.SentinelAuth); err != nil {
		return stack.Tier{}, err
	}
	if r.UseTLS() {
		files := certs.Files{Cert: s.Redis.TLSClientCert, Key: s.Redis.TLSClientKey, CA: s.Redis.TLSCACert}
		if o.TLS, err = storeTLS(s.watch, "REDIS_TLS_", files, s.Redis.TLSSkipHostnameVerification); err != nil {
			return stack.Tier{}, err
		}
	}
	store, err := redis.Open(o)
	if err != nil {
		return stack.Tier{}, fmt.Errorf("%sURL: %w", prefix, err)
	}
	s.measure.Pool(pools[role], store)
	return stack.Tier{Store: store, Timeout: r.Timeout}, nil
}

// servers returns a Watch that makes the breakers of a store's servers and reports
// their states to the log and to the metrics.
func (o *opening) servers(role string) *breaker.Watch {
	watch := &breaker.Watch{
		Log: o.log, Role: role,
		MaxInFlight:  o.Store.MaxInFlight,
		Slow:         cmp.Or(o.Store.DecisionTimeout, slowWithoutTimeout),
		FailureRatio: o.Store.FailureRatio,
		MinCalls:     o.Store.MinCalls,
		Window:       o.Store.Window,
	}
	o.watches = append(o.watches, watch)
	o.measure.ServersAway(role, watch.Away)
	return watch
}

// slowWithoutTimeout is the time after which a call is slow if no DECISION_TIMEOUT
// says it.
const slowWithoutTimeout = time.Second

func redisHealth(s *settings.Settings) server.StoreWatch {
	return server.StoreWatch{Always: s.Redis.HealthCheckActiveConnection, GiveUpAfter: s.Redis.StartupMaxElapsedTime}
}

func openMemcached(s *opening) (main, perSecond stack.Tier, err error) {
	m := s.Memcache
	o := memcached.Options{
		Servers:          m.HostPort,
		SRV:              m.SRV,
		SRVRefresh:       m.SRVRefresh,
		Timeout:          m.Timeout,
		MaxIdleConns:     m.MaxIdleConns,
		ExpirationJitter: s.jitter(),
		Watch:            s.servers("main"),
	}
	if m.TLS {
		files := certs.Files{Cert: m.TLSClientCert, Key: m.TLSClientKey, CA: m.TLSCACert}
		if o.TLS, err = storeTLS(s.watch, "MEMCACHE_TLS_", files, m.TLSSkipHostnameVerification); err != nil {
			return main, perSecond, err
		}
	}
	store, err := memcached.Open(o)
	if err != nil {
		return main, perSecond, err
	}
	return stack.Tier{Store: store, Timeout: m.Timeout}, perSecond, nil
}

func (o *opening) jitter() time.Duration {
	return time.Duration(o.Backend.ExpirationJitterMaxSeconds) * time.Second
}

// redisLog takes the lines that go-redis would write to stderr in a shape of
// its own, one for each attempt. The store itself says once, at the default
// level, that a server is away, so they are for debugging.
type redisLog struct{ *slog.Logger }

// Printf is called by go-redis.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.Debug("redis: " + fmt.Sprintf(format, args...))
}
