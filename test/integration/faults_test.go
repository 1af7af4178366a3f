package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
)

// remote is a kind of store that tests take away.
type remote struct {
	name  string
	start func(testing.TB, ...string) *testenv.Server
	at    func(addrs ...string) []string // settings
}

var remotes = []remote{
	{"Redis", testenv.Redis, redisAt},
	{"memcached", testenv.Memcached, memcachedAt},
}

const storeTimeout = 500 * time.Millisecond

// open starts the store. The settings have a timeout of storeTimeout.
func (r remote) open(t testing.TB) (*testenv.Server, []string) {
	server := r.start(t)
	timeout := storeTimeout.String()
	return server, append(r.at(server.Addr), "REDIS_TIMEOUT="+timeout, "MEMCACHE_TIMEOUT="+timeout)
}

// relayed starts the store behind a network that the test breaks.
func (r remote) relayed(t testing.TB) (*testenv.Relay, []string) {
	network := testenv.NewRelay(t, r.start(t).Addr)
	return network, r.at(network.Addr)
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
			server, settings := remote.open(t)
			s := serve(t, plenty, settings...)
			s.want("d", desc("user", "x"), ok, 999_999)
			server.Pause()
			testenv.Eventually(t, patience, func() bool {
				_, err := s.try(10*envoysTimeout, "d", desc("user", "x"))
				return err != nil
			}, "all threads of the store stand still")
			answersInTime(s)
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

func TestStoreThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	for _, remote := range remotes {
		t.Run(remote.name, func(t *testing.T) {
			t.Parallel()
			server, settings := remote.open(t)
			server.Stop()
			s := launch(t, plenty, settings...)
			s.inForce("d.user")
			s.undecided("d", desc("user", "x"), "")
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
			server, settings := remote.open(t)
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
