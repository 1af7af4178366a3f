package integration

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
)

// TestStoreThatRefuses: the caller is told why nothing was decided.
func TestStoreThatRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		redis    []string // its options
		settings []string
		why      string
	}{
		{"a wrong password", []string{"--requirepass", "secret"}, []string{"REDIS_AUTH=wrong"}, "WRONGPASS"},
		{"no password", []string{"--requirepass", "secret"}, nil, "NOAUTH"},
		{"no memory left", []string{"--maxmemory", "1"}, nil, "OOM"},
		{"a replica", []string{"--replicaof", "127.0.0.1", strconv.Itoa(testenv.FreePort(t))}, nil, "READONLY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := launch(t, plenty, append(redisAt(testenv.Redis(t, c.redis...).Addr), c.settings...)...)
			s.inForce("d.user")
			_, err := s.try(patience, "d", desc("user", "x"))
			if grpcstatus.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v, want UNAVAILABLE because of %s", err, c.why)
			}
		})
	}
}

// TestHealthFollowsTheStore when it is told to, through its death and return.
func TestHealthFollowsTheStore(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	s := serve(t, plenty, append(redisAt(redis.Addr), "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")...)
	s.want("d", desc("user", "x"), ok, 999_999)
	redis.Kill()
	if _, err := s.try(patience, "d", desc("user", "x")); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("without the store: %v", err)
	}
	testenv.Eventually(t, patience, func() bool { return !s.healthy() }, "unhealthy without the store")
	redis.Restart()
	s.want("d", desc("user", "x"), ok, 999_999) // the first call, and the counters are gone
	testenv.Eventually(t, patience, s.healthy, "healthy with the store")
}

// TestPromotedReplicaGoesOn: a master is lost, sentinels promote its replica.
func TestPromotedReplicaGoesOn(t *testing.T) {
	t.Parallel()
	set := testenv.Sentinel(t)
	url := strings.Join(append([]string{set.MasterName}, set.Addrs()...), ",")
	s := serve(t, plenty, append(redisAt(url), "REDIS_TYPE=sentinel", "REDIS_TIMEOUT=500ms")...)
	for left := range uint32(5) {
		s.want("d", desc("user", "x"), ok, 999_999-left)
	}
	testenv.Eventually(t, patience, func() bool { return len(keysOf(t, set.Replica.Addr)) == 1 }, "the replica has the counter")
	set.Master.Kill()
	var remaining uint32
	testenv.Eventually(t, patience, func() bool {
		resp, err := s.try(time.Second, "d", desc("user", "x"))
		if err == nil {
			remaining = resp.Statuses[0].LimitRemaining
		} else if grpcstatus.Code(err) != codes.Unavailable {
			t.Errorf("while there is no master: %v", err)
		}
		return err == nil
	}, "calls are decided again")
	if remaining >= 999_999 {
		t.Errorf("%d remain: the counter was lost", remaining)
	}
}
