package integration

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// failing is an Envoy and a service that answers too late or not at all.
type failing struct {
	*front
	service *service
}

func TestConformanceOfFailures(t *testing.T) {
	t.Parallel()
	s := serve(t, plentyOfEdge+"  - {key: never, rate_limit: {unit: year, requests_per_unit: 0}}\n")
	f := &failing{service: s, front: startFront(t, map[string]*service{"rls": s}, []frontListener{
		{Name: "open", Filters: []string{rateLimit("rls", "stat_prefix: open")}},
		{Name: "closed", Filters: []string{rateLimit("rls", "stat_prefix: closed, failure_mode_deny: true")}},
		{Name: "status", Filters: []string{rateLimit("rls", "failure_mode_deny: true, status_on_error: {code: ServiceUnavailable}")}},
		{Name: "patient", Filters: []string{rateLimit("rls", "timeout: 0.5s, stat_prefix: patient")}},
	}, []frontRoute{
		limited("/plenty", policies("plenty")),
		limited("/never", policies("never")),
	})}
	t.Run("later than 20 ms fails open", f.late)
	t.Run("failure_mode_deny", f.denied)
	t.Run("status_on_error", f.status)
	t.Run("killed under load", f.killed) // the last one: it ends the service
}

func (f *failing) late(t *testing.T) {
	const ok, failed, allowed = "cluster.upstream.ratelimit.open.ok", "cluster.upstream.ratelimit.open.error", "cluster.upstream.ratelimit.open.failure_mode_allowed"
	t.Run("while it is late", func(t *testing.T) {
		f.freeze(t)
		f.want(t, http.StatusOK, "open", "/never", "x-user: 50").wantHeaders(t, map[string]string{"X-Envoy-Ratelimited": ""})
		f.wantCounter(t, failed, 1)
		f.wantCounter(t, allowed, 1)
		f.wantCounter(t, "cluster.rls.upstream_rq_timeout", 1)
		f.wantCounter(t, ok, 0)
	})
	testenv.Eventually(t, patience, func() bool {
		a, err := f.try("open", "/never", "x-user: 50")
		return err == nil && a.code == http.StatusTooManyRequests
	}, "it decides again")
}

// freeze stops the service for the rest of the test.
func (f *failing) freeze(t *testing.T) {
	t.Helper()
	testenv.Freeze(t, f.service.cmd.Process)
	t.Cleanup(func() { _ = f.service.cmd.Process.Signal(syscall.SIGCONT) })
}

func (f *failing) denied(t *testing.T) {
	f.freeze(t)
	a := f.want(t, http.StatusInternalServerError, "closed", "/plenty", "x-user: 51")
	a.wantHeaders(t, map[string]string{"X-Flags": "RLSE", "X-Envoy-Ratelimited": ""})
	f.wantCounter(t, "cluster.upstream.ratelimit.closed.error", 1)
	f.wantCounter(t, "cluster.upstream.ratelimit.closed.failure_mode_allowed", 0)
}

func (f *failing) status(t *testing.T) {
	f.freeze(t)
	f.want(t, http.StatusServiceUnavailable, "status", "/plenty", "x-user: 52")
}

func (f *failing) killed(t *testing.T) {
	testenv.Eventually(t, patience, f.service.in(t).healthy, "the service answers again")
	var mu sync.Mutex
	var longest time.Duration
	stop := load(t, func() error {
		start := time.Now()
		a, err := f.try("patient", "/plenty", "x-user: 53")
		mu.Lock()
		longest = max(longest, time.Since(start))
		mu.Unlock()
		if err == nil && a.code != http.StatusOK {
			err = fmt.Errorf("answered %d", a.code)
		}
		return err
	})
	count := func(name string, least int) {
		testenv.Eventually(t, patience, func() bool { return f.counter(t, "cluster.upstream.ratelimit.patient."+name) > least }, name+" is counted")
	}
	count("ok", 100)
	if err := f.service.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	count("failure_mode_allowed", 100)
	if stop() == 0 || longest > 5*time.Second {
		t.Errorf("an answer took %v", longest)
	}
	f.want(t, http.StatusInternalServerError, "closed", "/plenty", "x-user: 53")
}

const plentyOfEdge = "domain: edge\ndescriptors:\n  - {key: plenty, rate_limit: {unit: year, requests_per_unit: 4000000000}}\n"

// answered sends a request to a listener and wants the status code 200.
func (f *front) answered(listener string) func() error {
	return func() error {
		a, err := f.try(listener, "/plenty", "x-user: x")
		if err == nil && a.code != http.StatusOK {
			err = fmt.Errorf("answered %d %s", a.code, strings.TrimSpace(a.body))
		}
		return err
	}
}

func TestConformanceUnderLoad(t *testing.T) {
	t.Parallel()
	const enough = 2000 // requests, at up to 2000 per second
	s := serve(t, plentyOfEdge)
	aging := serve(t, plentyOfEdge, "GRPC_MAX_CONNECTION_AGE=200ms", "GRPC_MAX_CONNECTION_AGE_GRACE=10s")
	// The service refuses more streams on a new connection, unless Envoy's cluster
	// has the same maximum, as here.
	narrow := serve(t, plentyOfEdge, "GRPC_MAX_CONCURRENT_STREAMS=4")
	f := startFront(t, map[string]*service{"rls": s, "aging": aging, "narrow": narrow}, []frontListener{
		{Name: "default", Filters: []string{rateLimit("rls", "stat_prefix: defaultly")}},
		{Name: "aging", Filters: []string{rateLimit("aging", patiently+", stat_prefix: aging")}},
		{Name: "narrow", Filters: []string{rateLimit("narrow", patiently+", stat_prefix: narrow")}},
	}, []frontRoute{limited("/plenty", policies("plenty"))})
	// Every call was checked, and none failed.
	checked := func(t *testing.T, prefix string, calls int64) {
		t.Helper()
		f.wantCounter(t, "cluster.upstream.ratelimit."+prefix+".ok", int(calls))
		f.wantCounter(t, "cluster.upstream.ratelimit."+prefix+".error", 0)
	}
	t.Run("GOAWAY under load", func(t *testing.T) {
		stop := load(t, f.answered("aging"))
		testenv.Eventually(t, patience, func() bool { return f.counter(t, "cluster.aging.upstream_cx_total") > 5 }, "connections went away")
		checked(t, "aging", stop())
	})
	t.Run("within 20 ms at load", func(t *testing.T) {
		stop := load(t, f.answered("default"))
		testenv.Eventually(t, patience, func() bool { return f.counter(t, "cluster.upstream.ratelimit.defaultly.ok") > enough }, "enough calls")
		calls := stop()
		late := f.counter(t, "cluster.rls.upstream_rq_timeout")
		f.wantCounter(t, "cluster.upstream.ratelimit.defaultly.error", late) // every error is a late answer
		f.wantCounter(t, "cluster.upstream.ratelimit.defaultly.ok", int(calls)-late)
		// Other tests use the processor, too. They explain a few late answers, but
		// not a tenth of them.
		t.Logf("%d of %d checks were late", late, calls)
		if int64(late) > calls/10 {
			t.Errorf("%d of %d checks took more than 20 ms", late, calls)
		}
	})
	t.Run("more calls than MAX_CONCURRENT_STREAMS", func(t *testing.T) {
		const calls, rounds = 50, 5
		for range rounds {
			var all sync.WaitGroup
			for range calls {
				all.Go(func() {
					if err := f.answered("narrow")(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		checked(t, "narrow", calls*rounds)
		if got := f.counter(t, "cluster.narrow.upstream_cx_total"); got < 2 {
			t.Errorf("%d connections: the calls were not at the same time", got)
		}
	})
}
