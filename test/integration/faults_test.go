package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
)

// remote is a store that can be frozen and stopped, and the settings for it
// with a timeout of storeTimeout.
type remote struct {
	name  string
	start func(testing.TB) (*testenv.Server, []string)
}

const storeTimeout = 500 * time.Millisecond

var remotes = []remote{
	{"Redis", func(t testing.TB) (*testenv.Server, []string) {
		server := testenv.Redis(t)
		return server, append(redisAt(server.Addr), "REDIS_TIMEOUT="+storeTimeout.String())
	}},
	{"memcached", func(t testing.TB) (*testenv.Server, []string) {
		server := testenv.Memcached(t)
		return server, append(memcachedAt(server.Addr), "MEMCACHE_TIMEOUT="+storeTimeout.String())
	}},
}

const plenty = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000000}}
`

// envoysTimeout is what Envoy gives a check unless it is told otherwise.
const envoysTimeout = 20 * time.Millisecond

func TestFrozenStore(t *testing.T) {
	t.Parallel()
	for _, remote := range remotes {
		t.Run(remote.name, func(t *testing.T) {
			t.Parallel()
			server, settings := remote.start(t)
			s := serve(t, plenty, settings...)
			s.want("d", desc("user", "x"), ok, 999_999)
			server.Pause()
			testenv.Eventually(t, patience, func() bool {
				_, err := s.try(10*envoysTimeout, "d", desc("user", "x"))
				return err != nil
			}, "all threads of the store stand still")
			answersInTime(s)
			staysSmall(s)
			server.Resume()
			testenv.Eventually(t, 2*storeTimeout, func() bool {
				resp, err := s.try(2*time.Second, "d", desc("user", "after"))
				return err == nil && resp.OverallCode == ok
			}, "decided after the freeze")
			if !s.healthy() {
				t.Error("unhealthy after the freeze")
			}
		})
	}
}

// answersInTime: UNAVAILABLE reaches callers before their deadlines, and callers
// without a deadline within twice DECISION_TIMEOUT.
func answersInTime(s *service) {
	s.t.Helper()
	for _, deadline := range []time.Duration{envoysTimeout, 10 * envoysTimeout} {
		const calls = 60
		calm, inTime := unavailableInTime(s, calls, deadline)
		switch {
		case calm < calls/2:
			s.t.Logf("not measured, because the machine stalled during %d of %d calls: answers within %v", calls-calm, calls, deadline)
		case inTime < calm*9/10:
			s.t.Errorf("%d of %d calls were answered within %v", inTime, calm, deadline)
		}
	}
	s.within(2*decisionTimeout, func() bool {
		_, err := s.client.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*descriptor{desc("user", "x")}})
		if grpcstatus.Code(err) != codes.Unavailable {
			s.t.Errorf("without a deadline: %v", err)
		}
		return true
	}, "a call without a deadline ends")
}

// unavailableInTime makes calls one after the other. It counts those during which
// nothing stalled, and those of them that are answered before their deadline.
func unavailableInTime(s *service, calls int, deadline time.Duration) (calm, inTime int) {
	s.t.Helper()
	stalls := testenv.WatchStalls(s.t, s.cmd.Process.Pid)
	for range calls {
		began := time.Now()
		_, err := s.try(deadline, "d", desc("user", "x"))
		code := grpcstatus.Code(err)
		if code != codes.Unavailable && code != codes.DeadlineExceeded {
			s.t.Fatalf("with a deadline of %v: %v", deadline, err)
		}
		if stalls.Since(began) > deadline/10 {
			continue
		}
		calm++
		if code == codes.Unavailable {
			inTime++
		}
	}
	return calm, inTime
}

// staysSmall: 500 callers a second, for seconds, leave nothing behind.
func staysSmall(s *service) {
	s.t.Helper()
	const (
		rate, lasting  = 500, 3 * time.Second
		goroutines     = "go_goroutines"
		resident       = "process_resident_memory_bytes"
		moreGoroutines = 100
		moreBytes      = 16 << 20
	)
	goroutinesBefore, bytesBefore := s.stat(goroutines), s.stat(resident)
	var most float64
	var answered, charged atomic.Int64
	var calls sync.WaitGroup
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	look := time.NewTicker(lasting / 10)
	defer look.Stop()
	for end := time.After(lasting); ; {
		select {
		case <-tick.C:
			calls.Go(func() {
				if _, err := s.try(envoysTimeout, "d", desc("user", "x")); err == nil {
					charged.Add(1)
				}
				answered.Add(1)
			})
			continue
		case <-look.C:
			most = max(most, s.stat(goroutines))
			continue
		case <-end:
		}
		break
	}
	calls.Wait()
	if answered.Load() < rate || charged.Load() > 0 {
		s.t.Errorf("%d calls, %d answered OK", answered.Load(), charged.Load())
	}
	if most > goroutinesBefore+moreGoroutines {
		s.t.Errorf("%v goroutines, %v before", most, goroutinesBefore)
	}
	if got := s.stat(resident); got > bytesBefore+moreBytes {
		s.t.Errorf("%v MiB of memory, %v before", got/(1<<20), bytesBefore/(1<<20))
	}
}

func TestStoreThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	for _, remote := range remotes {
		t.Run(remote.name, func(t *testing.T) {
			t.Parallel()
			server, settings := remote.start(t)
			server.Stop()
			s := launch(t, plenty, settings...)
			s.inForce("d.user")
			if _, err := s.try(patience, "d", desc("user", "x")); grpcstatus.Code(err) != codes.Unavailable {
				t.Errorf("without the store: %v", err)
			}
			if code, _ := s.get("HTTP", "/healthcheck"); code != http.StatusInternalServerError {
				t.Errorf("without the store, health is %d", code)
			}
			server.Restart()
			testenv.Eventually(t, 5*time.Second, func() bool {
				resp, err := s.try(patience, "d", desc("user", "x"))
				return err == nil && resp.OverallCode == ok
			}, "calls are answered OK")
			testenv.Eventually(t, 5*time.Second, s.healthy, "the program is healthy")
		})
	}
}

// TestCallersThatGiveUpDisturbNobody: Envoy cancels its checks when a client
// goes away. Here a thousand are cancelled at once, on their way to a store that
// is slow for a moment, while somebody else waits for it.
func TestCallersThatGiveUpDisturbNobody(t *testing.T) {
	t.Parallel()
	for _, remote := range remotes {
		t.Run(remote.name, func(t *testing.T) {
			t.Parallel()
			server, settings := remote.start(t)
			s := serve(t, plenty, append(settings, "REDIS_TIMEOUT=10s", "MEMCACHE_TIMEOUT=10s", "DECISION_TIMEOUT=10s")...)
			goroutines, cancelled := s.stat("go_goroutines"), `rls_requests_total{code="Canceled"}`
			crowd, giveUp := context.WithCancel(context.Background())
			defer giveUp()
			others := s.dial()
			var calls sync.WaitGroup
			patient := make(chan error, 1)

			server.Pause()
			for i := range 2000 {
				calls.Go(func() {
					_, _ = others.ShouldRateLimit(crowd, &pb.RateLimitRequest{Domain: "d", Descriptors: []*descriptor{desc("user", fmt.Sprint("impatient ", i%100))}})
				})
			}
			testenv.Eventually(t, patience, func() bool { return s.stat("go_goroutines") > goroutines+500 }, "the crowd is on its way")
			go func() {
				_, err := s.try(patience, "d", desc("user", "patient"))
				patient <- err
			}()
			giveUp()
			calls.Wait()
			testenv.Eventually(t, patience, func() bool { return s.stat(cancelled) > 500 }, "the crowd has given up")
			server.Resume()
			if err := <-patient; err != nil {
				t.Errorf("a patient caller among them: %v", err)
			}
			s.want("d", desc("user", "patient"), ok, 1_000_000-2)
			testenv.Eventually(t, patience, func() bool { return s.stat("go_goroutines") < goroutines+100 }, "nothing is left of the crowd")
		})
	}
}
