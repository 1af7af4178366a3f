package redis_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis"
)

// watched returns a Watch and the lines that it logs.
func watched() (*breaker.Watch, *testenv.Log) {
	l := &testenv.Log{}
	return &breaker.Watch{Log: slog.New(slog.NewTextHandler(l, nil)), Role: "main"}, l
}

// TestOneLineWhenAServerGoes: the log has one line when a server goes away and one
// when it is back, however many calls fail in between. Every error names the
// server.
func TestOneLineWhenAServerGoes(t *testing.T) {
	server := testenv.Redis(t, "--requirepass", "secret")
	watch, log := watched()
	s := open(t, redis.Options{URL: "redis://:secret@" + server.Addr, Watch: watch})
	must(t, s, hit("a"))
	server.Kill()
	for range 50 {
		if _, err := try(s, time.Second, hit("a")); err == nil || !strings.Contains(err.Error(), server.Addr) {
			t.Fatalf("%v, want an error with %s", err, server.Addr)
		}
	}
	testenv.Eventually(t, 5*time.Second, func() bool {
		_, _ = try(s, time.Second, hit("a"))
		return watch.Away() > 0
	}, "the server is known to be away")
	server.Restart()
	var got []string
	testenv.Eventually(t, 5*time.Second, func() bool {
		_, _ = try(s, time.Second, hit("a"))
		got = log.With("level=")
		return len(got) == 2
	}, "two lines")
	if !strings.Contains(got[0], "away") || !strings.Contains(got[0], "server="+server.Addr+" role=main") ||
		!strings.Contains(got[1], "back") || watch.Away() != 0 {
		t.Errorf("%d away, %q", watch.Away(), got)
	}
	if all := log.With("secret"); len(all) > 0 {
		t.Errorf("a password in %q", all)
	}
}

// TestReplicaIsNotBack: a server that has become a replica answers operations that
// only read. It is away all the same, until it is a master again.
func TestReplicaIsNotBack(t *testing.T) {
	server := testenv.Redis(t)
	watch, log := watched()
	s := open(t, redis.Options{URL: server.Addr, Watch: watch})
	for _, key := range []string{"a", "b"} {
		must(t, s, hit(key))
	}
	look := func(key string) error {
		op := hit(key)
		_, err := try(s, time.Second, op.Look())
		return err
	}
	admin(t, server, "REPLICAOF", "127.0.0.1", 1)
	testenv.Eventually(t, 5*time.Second, func() bool {
		_, _ = try(s, time.Second, hit("a"))
		return watch.Away() > 0
	}, "the server is away")
	for began := time.Now(); time.Since(began) < 2*time.Second; {
		for _, key := range []string{"a", "absent"} {
			if err := look(key); err == nil {
				t.Fatal("a replica is asked as if it was back")
			}
		}
		<-time.After(5 * time.Millisecond)
	}
	admin(t, server, "REPLICAOF", "NO", "ONE")
	testenv.Within(t, time.Second, func() bool { return look("absent") == nil }, "the master is asked again", server.Pid())
	if got := log.With("level="); len(got) != 2 {
		t.Errorf("the log has %q, want a line when the server goes away and one when it is back", got)
	}
	if r := must(t, s, hit("absent"))[0]; r.Value.Whole != 1 {
		t.Errorf("the first hit counts %d", r.Value.Whole)
	}
}

// TestWrongKindOfServer: errors and the log say once which kind of server answered
// and which option would be right, and nothing else.
func TestWrongKindOfServer(t *testing.T) {
	certs := testenv.Certs(t)
	plain, secure := testenv.Redis(t), testenv.Redis(t, certs.RedisArgs()...)
	for name, c := range map[string]struct {
		o    redis.Options
		want string
	}{
		"TLS to a plain port": {redis.Options{URL: plain.Addr, TLS: func() *tls.Config { return certs.Client.Clone() }}, "speak TLS on this port? else use no TLS"},
		"plain to a TLS port": {redis.Options{URL: secure.Addr}, "speak TLS on this port? then use TLS"},
		"not a cluster":       {redis.Options{URL: plain.Addr, Type: "cluster"}, "type SINGLE"},
		"not a sentinel":      {redis.Options{URL: "primary," + plain.Addr, Type: "sentinel"}, "not a sentinel"},
	} {
		t.Run(name, func(t *testing.T) {
			watch, log := watched()
			c.o.Watch = watch
			s := open(t, c.o)
			var err error
			for range 2 {
				_, err = try(s, 5*time.Second, hit("a"))
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if got := log.With("away"); len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("the log has %q, want one line with %q", got, c.want)
			}
			if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 1 || strings.Count(lines[0], c.want) != 1 {
				t.Errorf("the log has %q, want %q once", lines, c.want)
			}
		})
	}
}

// TestServerRefusesItsTime: the log has one line when the server refuses TIME and
// one when it allows TIME again. Each failed measurement is reported.
func TestServerRefusesItsTime(t *testing.T) {
	server := testenv.Redis(t)
	admin(t, server, "ACL", "SETUSER", "rls", "on", ">secret", "~*", "+@all", "-time")
	watch, log := watched()
	errs := make(chan error, 1000)
	ahead := func() time.Time { return time.Now().Add(time.Hour) }
	s := open(t, redis.Options{URL: server.Addr, Auth: fixed("rls:secret"), Clock: ahead, Watch: watch, ClockError: func(err error) { errs <- err }})
	for range 2 {
		select {
		case err := <-errs:
			if !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), server.Addr) {
				t.Errorf("%v, want what %s answered", err, server.Addr)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no error was reported")
		}
	}
	if got := log.With("time"); len(got) == 0 || len(log.With("refuses")) != 1 {
		t.Errorf("got %q", got)
	}
	admin(t, server, "ACL", "SETUSER", "rls", "+time")
	testenv.Eventually(t, 20*time.Second, func() bool { return len(log.With("tells its time again")) == 1 }, "the clock is the server's")
	if d := time.Since(time.UnixMicro(s.Now())).Abs(); d > time.Second {
		t.Errorf("the store's clock is off by %v", d)
	}
}

// TestClusterWithAMasterAway: the store is ready when it can decide for some keys,
// and the log says which master is away.
func TestClusterWithAMasterAway(t *testing.T) {
	cluster := testenv.RedisCluster(t, 3, 0)
	gone := cluster.Masters[0]
	alive, dead := keyOn(t, cluster.Masters[1], "alive"), keyOn(t, gone, "dead")
	for _, c := range []struct {
		how             string
		leave, comeBack func()
	}{
		{"frozen", gone.Pause, gone.Resume},
		{"killed", gone.Kill, func() {}},
	} {
		t.Run(c.how, func(t *testing.T) {
			c.leave()
			defer c.comeBack()
			watch, log := watched()
			s := open(t, redis.Options{Type: "cluster", URL: strings.Join(cluster.Addrs(), ","), Watch: watch})
			testenv.Eventually(t, 10*time.Second, func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				return s.Ping(ctx) == nil
			}, "the store is ready")
			must(t, s, hit(alive))
			testenv.Eventually(t, 10*time.Second, func() bool {
				replies, err := try(s, 50*time.Millisecond, hit(alive), hit(dead))
				if replies[0].Err != nil || replies[1].Err == nil || err == nil {
					t.Fatalf("the part of a live master: %v; of the other: %v; in all: %v", replies[0].Err, replies[1].Err, err)
				}
				return len(log.With("is away")) == 1
			}, "the log says so")
			if got := log.With("is away"); !strings.Contains(got[0], gone.Addr) {
				t.Errorf("got %q, want %s", got, gone.Addr)
			}
		})
	}
}
