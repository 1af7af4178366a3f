package integration

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
)

// TestHealthFollowsTheStore when it is told to, through its death and return.
func TestHealthFollowsTheStore(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	s := serve(t, plenty, append(redisAt(redis.Addr), "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")...)
	s.want("d", desc("user", "x"), ok, 999_999)
	redis.Kill()
	s.undecided("d", desc("user", "x"), "")
	testenv.Eventually(t, patience, func() bool { return !s.healthy() }, "unhealthy without the store")
	redis.Restart()
	s.want("d", desc("user", "x"), ok, 999_999) // the first call, and the counters are gone
	testenv.Eventually(t, patience, s.healthy, "healthy with the store")
}

// TestPromotedReplicaGoesOn: a master is lost, sentinels promote its replica.
func TestPromotedReplicaGoesOn(t *testing.T) {
	t.Parallel()
	set := testenv.Sentinel(t)
	s := serve(t, plenty, append(sentinelsAt(set), "REDIS_TIMEOUT=500ms")...)
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
