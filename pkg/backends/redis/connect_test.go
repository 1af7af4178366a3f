package redis_test

import (
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/redis"
)

func TestUsersAndDatabases(t *testing.T) {
	server := testenv.Redis(t, "--user", "default", "off", "--user", "rls", "on", ">secret", "~*", "&*", "+@all")
	for name, o := range map[string]redis.Options{
		"auth":          {URL: server.Addr, Auth: fixed("rls:secret")},
		"URL":           {URL: "redis://rls:secret@" + server.Addr},
		"auth over URL": {URL: "redis://nobody:wrong@" + server.Addr, Auth: fixed("rls:secret")},
	} {
		t.Run(name, func(t *testing.T) { must(t, open(t, o), hit("a")) })
	}
	if _, err := try(open(t, redis.Options{URL: server.Addr, Auth: fixed("rls:wrong")}), time.Second, hit("a")); err == nil ||
		strings.Contains(err.Error(), "wrong:") {
		t.Errorf("a wrong password: %v", err)
	}
	zero := open(t, redis.Options{URL: server.Addr, Auth: fixed("rls:secret")})
	two := open(t, redis.Options{URL: "redis://rls:secret@" + server.Addr + "/2"})
	must(t, two, hit("in two"))
	if got := count(t, zero, "in two"); got != 0 {
		t.Errorf("database 0 shows a key of database 2")
	}
}

func TestPasswordOnly(t *testing.T) {
	server := testenv.Redis(t, "--requirepass", "secret")
	must(t, open(t, redis.Options{URL: server.Addr, Auth: fixed("secret")}), hit("a"))
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	testenv.Redis(t, "--unixsocket", path)
	must(t, open(t, redis.Options{SocketType: "unix", URL: path}), hit("a"))
}

func TestTLS(t *testing.T) {
	certs := testenv.Certs(t)
	server := testenv.Redis(t, certs.RedisArgs()...)
	for _, url := range []string{server.Addr, "rediss://" + server.Addr} {
		must(t, open(t, redis.Options{URL: url, TLS: certs.ForClient}), hit("a"))
	}
	if _, err := try(open(t, redis.Options{URL: server.Addr, TLS: func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }}), time.Second, hit("a")); err == nil {
		t.Error("a server of an unknown authority was trusted")
	}
	// A closed connection is noticed under TLS, too.
	s := open(t, redis.Options{URL: server.Addr, TLS: certs.ForClient})
	must(t, s, hit("a"))
	server.Restart()
	if _, err := try(s, time.Second, hit("a")); err != nil {
		t.Errorf("first call after the restart: %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    redis.Options
		want string
	}{
		"no URL":             {redis.Options{}, "URL is empty"},
		"type":               {redis.Options{URL: "a:1", Type: "ring"}, `unknown type "ring": one of SINGLE, SENTINEL, CLUSTER`},
		"socket":             {redis.Options{URL: "a:1", SocketType: "udp"}, "tcp or unix"},
		"unix, host:port":    {redis.Options{URL: "redis:6379", SocketType: "unix"}, "set socket type tcp"},
		"unix cluster":       {redis.Options{URL: "/s", SocketType: "unix", Type: "cluster"}, "needs socket type tcp"},
		"sentinel, no hosts": {redis.Options{URL: "master", Type: "sentinel"}, "master,host:port,host:port"},
		"port":               {redis.Options{URL: "a:b"}, "not a host:port"},
		"database":           {redis.Options{URL: "redis://a:1/x"}, "number of a database"},
		"cluster database":   {redis.Options{URL: "redis://a:1/3", Type: "cluster"}, "no databases"},
		"scheme":             {redis.Options{URL: "http://u:secret@a:1"}, "redis://"},
		"pool":               {redis.Options{URL: "a:1", PoolSize: -1}, "pool size"},
		"timeout":            {redis.Options{URL: "a:1", Timeout: -1}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := redis.Open(c.o)
			if err == nil {
				_ = s.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v: want %q and no secrets", err, c.want)
			}
		})
	}
}
