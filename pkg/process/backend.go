package process

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/replicas"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/state"
)

// backend describes one value of BACKEND_TYPE.
type backend struct {
	// open opens the stores that count, the tiers of the process. It does not wait for servers.
	open func(*process) error
	// system is the name of its servers in OpenTelemetry; "" if it has no servers.
	system string
}

const (
	inMemory    = "memory"
	inRedis     = "redis"
	inMemcached = "memcache"
)

var backendTypes = map[string]backend{
	inMemory:    {open: openMemory},
	inRedis:     {open: openRedis, system: "redis"},
	inMemcached: {open: openMemcached, system: "memcached"},
}

// openStore opens the stores that BACKEND_TYPE names, and makes their stack.
func (p *process) openStore(context.Context) (err error) {
	b := backendTypes[p.Backend.BackendType]
	p.replicas = new(replicas.Replicas)
	if p.Backend.Shared() {
		p.replicas = replicas.New(p.Store.Replicas, p.Store.ReplicasDNS, net.DefaultResolver.LookupNetIP, p.log)
		p.run(p.replicas.Run)
	}
	if err := b.open(p); err != nil {
		return fmt.Errorf("open backend: %w", err)
	}
	p.measure.Breakers(p.Backend.BackendType, p.watches)
	p.store, err = stack.Build(stack.Options{
		Main:       p.main,
		PerSecond:  p.second,
		Decision:   p.Store.DecisionTimeout,
		LocalCache: p.Backend.LocalCacheSizeInBytes,
		Replicas:   p.replicas.Count,
		Watch: func(s backends.Store) backends.Store {
			if !p.Metrics.DisableStats {
				s = p.measure.Store(s, p.Backend.BackendType)
			}
			return p.tracer.Store(s, b.system)
		},
		Near: func(s *near.Store) {
			p.measure.Leases(s.Leases)
			if p.Backend.LocalCacheSizeInBytes > 0 {
				p.measure.LocalCache(s.Cache)
			}
		},
		Log: p.log,
	})
	if err == nil {
		p.closes = append(p.closes, func() { _ = p.store.Close() })
	}
	return err
}

func openMemory(p *process) error {
	store, err := memory.New(p.Memory)
	if err != nil {
		return err
	}
	p.measure.Memory(store.Len, store.Evicted)
	p.main.Store = store
	p.keep("counters", store)
	return nil
}

// keep has STATE_FILE remember a part of the process.
func (p *process) keep(name string, part interface {
	Save(io.Writer) error
	Load(io.Reader) error
}) {
	p.kept = append(p.kept, state.Part{Name: name, Save: part.Save, Load: part.Load})
}

// share has the store remember a part of the process together with those of other processes.
func (p *process) share(name string, part interface {
	Changes() uint64
	Recall(text []byte)
	Merge(text []byte, n int) []byte
}) {
	p.shared = append(p.shared, state.SharedPart{Name: name, Changes: part.Changes, Recall: part.Recall, Merge: part.Merge})
}

// openState reads STATE_FILE, or what the store remembers for the admin API, and has it written again
// and again and at the end.
func (p *process) openState(ctx context.Context) (err error) {
	if notes, can := p.main.Store.(backends.Notes); can && p.Backend.Shared() && p.adminOn() {
		shared := state.NewShared(notes, p.Backend.CacheKeyPrefix, p.log, p.shared...)
		_ = shared.Save(ctx) // recalls; a failure is logged and counted
		p.run(shared.Run)
		p.measure.State(shared.Saved, shared.Failed)
		return nil
	}
	file := new(state.File)
	if p.State.File != "" {
		if file, err = state.Open(p.State.File, p.log); err != nil {
			return fmt.Errorf("STATE_FILE: %w", err)
		}
		file.Load(p.kept...)
		p.closes = append(p.closes, func() { _ = file.Close() }) // a failure is logged
		p.run(func(ctx context.Context) error { return file.Run(ctx, p.State.Interval) })
	}
	p.measure.State(file.Saved, file.Failed)
	return nil
}

func openRedis(p *process) (err error) {
	goredis.SetLogger(redisLog{p.log})
	p.storeWatch = server.StoreWatch{Always: p.Redis.HealthCheckActiveConnection, GiveUpAfter: p.Redis.StartupMaxElapsedTime}
	if p.main, err = openRedisServer(p, "REDIS_", "main", p.Redis.RedisServer); err != nil || !p.Redis.Persecond {
		return err
	}
	if p.second, err = openRedisServer(p, "REDIS_PERSECOND_", "per-second", p.RedisPerSecond); err != nil {
		_ = p.main.Store.Close()
	}
	return err
}

// pools are the names of the connections to a Redis in metrics, by its role.
var pools = map[string]string{"main": "redis_pool", "per-second": "redis_per_second_pool"}

func openRedisServer(p *process, prefix, role string, r settings.RedisServer) (stack.Tier, error) {
	o := r.Options
	o.Timeout, o.ExpirationJitter = r.Timeout, p.expirationJitter()
	o.Watch, o.ClockError = p.servers(role), p.measure.ClockError
	if r.Type != "SINGLE" {
		o.SocketType = "tcp" // REDIS_SOCKET_TYPE is for a single server
	}
	var err error
	if o.Auth, err = password(p.watch, prefix+"AUTH_FILE", r.AuthFile, r.Auth); err != nil {
		return stack.Tier{}, err
	}
	if o.SentinelAuth, err = password(p.watch, prefix+"SENTINEL_AUTH_FILE", r.SentinelAuthFile, r.SentinelAuth); err != nil {
		return stack.Tier{}, err
	}
	if r.UseTLS() {
		if o.TLS, err = p.tls.redis.client("", p.Redis.TLSSkipHostnameVerification); err != nil {
			return stack.Tier{}, err
		}
	}
	store, err := redis.Open(o)
	if err != nil {
		return stack.Tier{}, fmt.Errorf("%sURL: %w", prefix, err)
	}
	p.measure.Pool(pools[role], store.Connections)
	return stack.Tier{Store: store, Timeout: r.Timeout}, nil
}

func (p *process) expirationJitter() time.Duration {
	return time.Duration(p.Backend.ExpirationJitterMaxSeconds) * time.Second
}

// servers returns a Watch that makes the breakers of a store's servers and reports
// their states to the log and to the metrics.
func (p *process) servers(role string) *breaker.Watch {
	watch := &breaker.Watch{
		Log: p.log, Role: role,
		MaxInFlight: p.Store.MaxInFlight,
		Slow:        cmp.Or(p.Store.DecisionTimeout, time.Second),
		Failing: func(address string) breaker.Outage {
			return p.events.Failing(events.Server{Address: address, Role: role})
		},
	}
	p.watches = append(p.watches, watch)
	return watch
}

func openMemcached(p *process) (err error) {
	m := &p.Memcache
	o := m.Options
	o.ExpirationJitter, o.Watch = p.expirationJitter(), p.servers("main")
	if m.TLS {
		if o.TLS, err = p.tls.memcached.client("", m.TLSSkipHostnameVerification); err != nil {
			return err
		}
	}
	p.main.Timeout = m.Timeout
	p.main.Store, err = memcached.Open(o)
	return err
}

// redisLog has the lines that go-redis writes, one for each attempt, at the level for debugging:
// the store itself says once that a server is away.
type redisLog struct{ *slog.Logger }

// Printf is called by go-redis.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.Debug("redis: " + fmt.Sprintf(format, args...))
}
