package integration

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
)

func TestSIGTERMAnswersCallsInFlight(t *testing.T) {
	t.Parallel()
	s := serve(t, queueRules)
	const calls = 3 // at once, after a second and after two
	var answered atomic.Int64
	var waiting sync.WaitGroup
	for range calls {
		waiting.Go(func() {
			resp, err := s.try(patience, "d", desc("queue", "x"))
			if err != nil || resp.OverallCode != ok {
				t.Errorf("%v %v", resp, err)
			}
			answered.Add(1)
		})
	}
	s.held(calls - 1)
	s.terminate()
	if answered.Load() == calls {
		t.Error("no call was in flight")
	}
	if code := s.exitCode(patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	waiting.Wait()
}

func TestSIGTERMWhileTheStoreIsFrozen(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	s := serve(t, strategyRules(10, "always"), append(redisAt(redis.Addr), "REDIS_TIMEOUT=1s")...)
	redis.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := s.try(patience, "all", desc("gcra", "x"))
		answered <- err
	}()
	testenv.Eventually(t, patience, func() bool { return s.goroutinesIn("service.(*Service).Decide") > 0 }, "the call is in flight")
	s.terminate()
	if err := <-answered; grpcstatus.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not decided") {
		t.Errorf("the call in flight: %v", err)
	}
	if code := s.exitCode(10 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
