package integration

import (
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

//go:embed testdata/envoy_two.yaml
var envoyTwoText string

const plentyRules = `
domain: web
descriptors: [{key: plenty, rate_limit: {unit: year, requests_per_unit: 4000000000}}]
`

// load calls do from several goroutines until stop is called, which returns
// how often it did.
func load(t *testing.T, do func() error) (stop func() int64) {
	const callers, pause = 4, 2 * time.Millisecond
	var calls atomic.Int64
	var running sync.WaitGroup
	ended := make(chan struct{})
	for range callers {
		running.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				if err := do(); err != nil {
					t.Error(err)
					return
				}
				calls.Add(1)
			}
		})
	}
	stop = sync.OnceValue(func() int64 {
		close(ended)
		running.Wait()
		return calls.Load()
	})
	t.Cleanup(func() { stop() })
	return stop
}

// Pods are replaced one after the other; Envoy asks for their health once a
// second and believes it a second later.
func TestRollingReplacementBehindEnvoy(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	ports := []int{testenv.FreePort(t), testenv.FreePort(t)}
	pod := func(port int) *service {
		// DRAIN_PERIOD is the default.
		return serve(t, plentyRules, "GRPC_PORT="+strconv.Itoa(port), "DRAIN_PERIOD=3s")
	}
	current := pod(ports[0])
	envoy := startEnvoy(t, envoyTwoText, map[string]any{"Upstream": portOf(t, upstream.Listener.Addr().String()), "Services": ports})
	healthy := func(port int) func() bool {
		address := regexp.QuoteMeta(fmt.Sprintf("rls::127.0.0.1:%d::", port))
		return func() bool {
			return regexp.MustCompile(address + "health_flags::healthy").MatchString(envoy.Admin("/clusters"))
		}
	}
	testenv.Eventually(t, patience, healthy(ports[0]), "Envoy sees the first pod")

	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 10}}
	url := "http://" + envoy.Listener("front") + "/"
	stop := load(t, func() error {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("answered %s", resp.Status)
		}
		return nil
	})
	for round := 1; round <= 2; round++ {
		port := ports[round%2]
		next := pod(port)
		testenv.Eventually(t, patience, healthy(port), "Envoy sees the next pod")
		current.ends()
		current = next
	}
	calls := stop()
	stats := envoy.Admin("/stats?filter=ratelimit")
	if !strings.Contains(stats, "cluster.upstream.ratelimit.ok: "+strconv.FormatInt(calls, 10)) || calls == 0 {
		t.Errorf("not all of %d calls were checked:\n%s", calls, stats)
	}
	if found := regexp.MustCompile(`cluster\.upstream\.ratelimit\.(error|failure_mode_allowed): [1-9]`).FindString(stats); found != "" {
		t.Error(found)
	}
}

// A second process on the same ports takes over while calls go on.
func TestTakeoverOnTheSamePort(t *testing.T) {
	t.Parallel()
	port := "GRPC_PORT=" + strconv.Itoa(testenv.FreePort(t))
	shared := "REUSE_PORT=true" // by default not with counters in memory
	first := serve(t, plentyRules, port, shared, "DRAIN_PERIOD=200ms")
	stop := load(t, func() error {
		_, err := first.try(patience, "web", desc("plenty", "x"))
		return err
	})
	second := serve(t, plentyRules, port, shared)
	first.ends()
	testenv.Eventually(t, patience, func() bool { return second.stat(`rls_requests_total{code="OK"}`) > 100 }, "the second process answers")
	if calls := stop(); calls == 0 {
		t.Error("no calls")
	}
}

// The program answers soon after it was started, with many rules.
func TestAnswersSoonAfterTheStart(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("domain: web\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&rules, "  - {key: user, value: u%d, rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, i+1)
	}
	// The machine may be busy, so the program starts again until it was in time once.
	const promised, tries = 150 * time.Millisecond, 20
	best := time.Hour
	for try := 0; try < tries && best > promised; try++ {
		begin := time.Now()
		s := launch(t, rules.String())
		testenv.Eventually(t, patience, func() bool {
			resp, err := s.try(patience, "web", desc("user", "u999"))
			return err == nil && resp.Statuses[0].GetCurrentLimit().GetRequestsPerUnit() == 1000
		}, "the last rule is in force")
		best = min(best, time.Since(begin))
	}
	t.Logf("answered after %v", best)
	if best > promised {
		t.Errorf("answered after %v, want %v", best, promised)
	}
}
