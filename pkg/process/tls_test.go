package process

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"example.org/rls/internal/reread"
	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/settings"
)

// moved copies the files of certificates into a folder and returns them there.
func moved(t *testing.T, dir string, c *testenv.TLS) *testenv.TLS {
	t.Helper()
	there := *c
	for _, file := range []*string{&there.CAFile, &there.ServerCertFile, &there.ServerKeyFile, &there.ClientCertFile, &there.ClientKeyFile} {
		content, err := os.ReadFile(*file)
		*file = filepath.Join(dir, filepath.Base(*file))
		if err == nil {
			err = os.WriteFile(*file, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &there
}

// storeOf opens the store of the settings. Its watcher does not run yet.
func storeOf(t *testing.T, s *settings.Settings, log *slog.Logger) (backends.Store, *reread.Watcher) {
	t.Helper()
	p := newProcess(s, log, io.Discard)
	t.Cleanup(p.close)
	for _, open := range []func(context.Context) error{p.openSettings, p.openCertificates, p.openTracer, p.openStore} {
		if err := open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return p.store, p.watch
}

// run runs the watcher until the test ends.
func run(t *testing.T, watch *reread.Watcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = watch.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// When a server of a store changes to another CA, the store reaches it again as
// soon as the files of the CA and of the client's certificate have been replaced.
func TestStoresFollowARenewedCA(t *testing.T) {
	t.Parallel()
	for backend, start := range map[string]func(testing.TB, *testenv.TLS) (*testenv.Server, *settings.Settings){
		"redis": func(t testing.TB, c *testenv.TLS) (*testenv.Server, *settings.Settings) {
			server, s := testenv.Redis(t, c.RedisArgs()...), &settings.Settings{}
			s.Redis.RedisServer = settings.RedisServer{Options: redis.Options{Type: "SINGLE", SocketType: "tcp", URL: server.Addr, PoolSize: 2}, TLS: true, Timeout: time.Second}
			s.Redis.TLSClientCert, s.Redis.TLSClientKey, s.Redis.TLSCACert = c.ClientCertFile, c.ClientKeyFile, c.CAFile
			return server, s
		},
		"memcache": func(t testing.TB, c *testenv.TLS) (*testenv.Server, *settings.Settings) {
			server, s := testenv.Memcached(t, c.MemcachedArgs()...), &settings.Settings{}
			s.Memcache = settings.Memcache{Options: memcached.Options{Servers: []string{server.Addr}, Timeout: time.Second, MaxIdleConns: 2}, TLS: true}
			s.Memcache.TLSClientCert, s.Memcache.TLSClientKey, s.Memcache.TLSCACert = c.ClientCertFile, c.ClientKeyFile, c.CAFile
			return server, s
		},
	} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			server, s := start(t, moved(t, dir, testenv.Certs(t)))
			s.Backend.BackendType = backend
			store, watch := storeOf(t, s, slog.New(slog.DiscardHandler))
			answers := func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return store.Ping(ctx) == nil
			}
			testenv.Eventually(t, patience, answers, "the store answers")

			moved(t, dir, testenv.Certs(t))
			server.Restart()
			if answers() {
				t.Fatal("the server of the new CA is trusted before the files were read again")
			}
			run(t, watch)
			testenv.Eventually(t, patience, answers, "the store answers with the new CA")
		})
	}
}
