package redis_test

import (
	"crypto/tls"
	"path/filepath"
	"strings"
	"sync/atomic"
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
		"a list":             {redis.Options{URL: "a:1,b:1"}, "is a list, not one host:port"},
		"two passwords":      {redis.Options{URL: "a,redis://:secret@h:1,redis://:secret2@h:2", Type: "sentinel"}, "different users or passwords"},
		"two users":          {redis.Options{URL: "redis://a:secret@h:1,redis://b:secret@h:2", Type: "cluster"}, "different users or passwords"},
		"scheme":             {redis.Options{URL: "http://u:secret@a:1"}, "redis://"},
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

// rotating is a password that a test changes.
type rotating struct{ atomic.Pointer[string] }

func (r *rotating) set(auth string) { r.Store(&auth) }
func (r *rotating) now() string     { return *r.Load() }

// protect gives servers the user rls with this password, beside the default user,
// and ends the connections of other users.
func protect(t *testing.T, password string, servers ...*testenv.Server) {
	t.Helper()
	for _, server := range servers {
		admin(t, server, "ACL", "SETUSER", "rls", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
		drop(t, server)
	}
}

// drop ends the connections of the store.
func drop(t *testing.T, server *testenv.Server) {
	t.Helper()
	for _, kind := range []string{"normal", "pubsub"} {
		admin(t, server, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes", "USER", "rls")
	}
}

// A connection that is opened after a rotation has the new password, in a cluster
// and behind sentinels, too.
func TestRotatedPasswordOfNewConnections(t *testing.T) {
	var auth rotating
	for name, start := range map[string]func(*testing.T) ([]*testenv.Server, redis.Options){
		"cluster": func(t *testing.T) ([]*testenv.Server, redis.Options) {
			c := testenv.RedisCluster(t, 2, 0)
			return c.Masters, redis.Options{Type: "cluster", URL: strings.Join(c.Addrs(), ","), Auth: auth.now}
		},
		"sentinels": func(t *testing.T) ([]*testenv.Server, redis.Options) {
			set := testenv.Sentinel(t)
			return append(set.Sentinels, set.Master, set.Replica),
				redis.Options{Type: "sentinel", URL: set.MasterName + "," + strings.Join(set.Addrs(), ","), Auth: auth.now, SentinelAuth: auth.now}
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers, o := start(t)
			auth.set("rls:first")
			protect(t, "first", servers...)
			s := open(t, o)
			works := func() bool {
				_, first := try(s, time.Second, hit("a"))
				_, second := try(s, time.Second, hit("b"))
				return first == nil && second == nil
			}
			testenv.Eventually(t, 10*time.Second, works, "the first password counts")
			protect(t, "second", servers...)
			testenv.Eventually(t, 10*time.Second, func() bool {
				_, err := try(s, time.Second, hit("a"))
				return err != nil && strings.Contains(err.Error(), "WRONGPASS")
			}, "new connections are refused")
			auth.set("rls:second")
			testenv.Eventually(t, 10*time.Second, works, "the second password counts")
		})
	}
}

// A sentinel's password is not sent to the master, nor the other way round.
func TestSentinelsHaveAPasswordOfTheirOwn(t *testing.T) {
	set := testenv.Sentinel(t)
	for _, sentinel := range set.Sentinels {
		admin(t, sentinel, "ACL", "SETUSER", "default", "resetpass", ">sentinels")
	}
	o := redis.Options{Type: "sentinel", URL: set.MasterName + "," + strings.Join(set.Addrs(), ","), SentinelAuth: fixed("sentinels")}
	must(t, open(t, o), hit("a"))
	if log := admin(t, set.Master, "ACL", "LOG"); len(log.([]any)) != 0 {
		t.Errorf("the master has refused a user: %v", log)
	}
	byURL := redis.Options{Type: "sentinel", URL: " " + set.MasterName + " , redis://:sentinels@" + strings.Join(set.Addrs(), " , ")}
	must(t, open(t, byURL), hit("a"))
	byURL.SentinelAuth = fixed("wrong")
	if _, err := try(open(t, byURL), time.Second, hit("a")); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password in place of that of the URL: %v", err)
	}
	if log := admin(t, set.Master, "ACL", "LOG"); len(log.([]any)) != 0 {
		t.Errorf("the master has refused a user: %v", log)
	}
	o.SentinelAuth = fixed("wrong")
	if _, err := try(open(t, o), time.Second, hit("a")); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password for the sentinels: %v", err)
	}
}

// TestConnections: the store counts the open connections and all connections that
// it has opened, whether it or the server closes them.
func TestConnections(t *testing.T) {
	server := testenv.Redis(t)
	s, err := redis.Open(redis.Options{URL: server.Addr, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ping := func() bool { return s.Ping(t.Context()) == nil }
	testenv.Eventually(t, 10*time.Second, ping, "an answer")
	open, opened := s.Connections()
	if open < 1 || opened < open {
		t.Errorf("after an answer %d are open of %d", open, opened)
	}
	server.Restart()
	testenv.Eventually(t, 10*time.Second, func() bool {
		_, now := s.Connections()
		return ping() && now > opened
	}, "a new connection")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, 10*time.Second, func() bool {
		open, _ := s.Connections()
		return open == 0
	}, "all connections are closed")
}

// TestTLSOnTheWrongPort: the error says that the server may, or may not, speak TLS on the port,
// in the same words for each type.
func TestTLSOnTheWrongPort(t *testing.T) {
	certs := testenv.Certs(t)
	plain, secure := testenv.Redis(t), testenv.Redis(t, certs.RedisArgs()...)
	for kind, before := range map[string]string{"single": "", "sentinel": "primary,", "cluster": ""} {
		for _, c := range []struct {
			server *testenv.Server
			tls    func() *tls.Config
			want   string
		}{
			{secure, nil, "does the server speak TLS on this port? then use TLS or rediss://"},
			{plain, certs.ForClient, "does the server speak TLS on this port? else use no TLS"},
		} {
			s := open(t, redis.Options{Type: kind, URL: before + c.server.Addr, TLS: c.tls})
			testenv.Eventually(t, 10*time.Second, func() bool {
				_, err := try(s, 2*time.Second, hit("a"))
				return err != nil && strings.Contains(err.Error(), c.want)
			}, kind+": "+c.want)
			_, err := try(s, 2*time.Second, hit("a"))
			t.Logf("%s: %v", kind, err)
		}
	}
}

// TestUnknownMaster: the error says that no sentinel knows the name.
func TestUnknownMaster(t *testing.T) {
	set := testenv.Sentinel(t)
	for _, addrs := range [][]string{set.Addrs(), set.Addrs()[:1]} {
		s := open(t, redis.Options{Type: "sentinel", URL: "primery," + strings.Join(addrs, " , ")})
		_, err := try(s, 2*time.Second, hit("a"))
		if err == nil || !strings.Contains(err.Error(), `the sentinels know no master named "primery"`) {
			t.Errorf("%d sentinels: %v", len(addrs), err)
		}
	}
}
