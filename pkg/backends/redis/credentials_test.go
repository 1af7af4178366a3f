package redis_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends/redis"
)

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
	o.SentinelAuth = fixed("wrong")
	if _, err := try(open(t, o), time.Second, hit("a")); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password for the sentinels: %v", err)
	}
}
