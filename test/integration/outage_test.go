package integration

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/internal/testenv"
)

// outageRules have a limit of each policy. Nobody comes near the limits of users.
const outageRules = `
domain: d
descriptors:
  - {key: allow, rate_limit: {unit: year, requests_per_unit: 1000000, on_error: allow}}
  - {key: deny, rate_limit: {unit: year, requests_per_unit: 1000000, on_error: deny}}
  - {key: local, rate_limit: {unit: year, requests_per_unit: 1000000, on_error: local}}
  - {key: exact, rate_limit: {unit: year, requests_per_unit: 5, on_error: deny}}
`

// outageLasts is how long stores are away. RLS_OUTAGE=1m go test … is the promise
// in full.
func outageLasts(t *testing.T) time.Duration {
	text := os.Getenv("RLS_OUTAGE")
	if text == "" {
		return 5 * time.Second
	}
	lasts, err := time.ParseDuration(text)
	if err != nil || lasts < time.Second {
		t.Fatalf("RLS_OUTAGE=%q: want a duration of a second or more, such as 1m", text)
	}
	return lasts
}

// TestOutage: a store is away for some seconds at 1,000 checks a second, and each
// check has 20 ms, as Envoy gives it. The test is not parallel to others, because it
// measures milliseconds.
func TestOutage(t *testing.T) {
	for _, store := range remotes {
		for _, fault := range []struct {
			name       string
			away, back func(*testing.T, *testenv.Server, *testenv.Relay)
			remaining  uint32 // of the limit of 5, of which 3 are used, after it
			direct     bool   // without a relay, which accepts connections that a killed server refuses
		}{
			{"frozen", onServer((*testenv.Server).Pause), onServer((*testenv.Server).Resume), 2, true},
			{"killed", onServer((*testenv.Server).Kill), onServer((*testenv.Server).Restart), 5, true},
			{"black-holed", onNetwork((*testenv.Relay).BlackHole), onNetwork((*testenv.Relay).Heal), 2, false},
			{"half open", onNetwork((*testenv.Relay).Freeze), onNetwork((*testenv.Relay).Heal), 2, false},
			{"resetting", onNetwork(func(r *testenv.Relay) { r.CutEvery(1) }), onNetwork((*testenv.Relay).Heal), 2, false},
			{"READONLY", replicaOf("127.0.0.1", "1"), replicaOf("NO", "ONE"), 2, true},
		} {
			if fault.name == "READONLY" && store.name != "Redis" {
				continue
			}
			t.Run(store.name+" "+fault.name, func(t *testing.T) {
				t.Parallel()
				server := store.start(t)
				addr, network := server.Addr, (*testenv.Relay)(nil)
				if !fault.direct {
					network = testenv.NewRelay(t, server.Addr)
					addr = network.Addr
				}
				o := outage{t: t, service: serve(t, outageRules, append(store.at(addr), "REPLICAS=1")...), server: addr}
				o.run(func() { fault.away(t, server, network) }, func() { fault.back(t, server, network) }, fault.remaining)
			})
		}
	}
}

func onServer(do func(*testenv.Server)) func(*testing.T, *testenv.Server, *testenv.Relay) {
	return func(_ *testing.T, s *testenv.Server, _ *testenv.Relay) { do(s) }
}

func onNetwork(do func(*testenv.Relay)) func(*testing.T, *testenv.Server, *testenv.Relay) {
	return func(_ *testing.T, _ *testenv.Server, r *testenv.Relay) { do(r) }
}

// replicaOf makes a Redis a replica, which refuses to write, or a master again.
func replicaOf(host, port string) func(*testing.T, *testenv.Server, *testenv.Relay) {
	return func(t *testing.T, s *testenv.Server, _ *testenv.Relay) {
		operate(t, s.Addr, "").does("REPLICAOF", host, port)
	}
}

// outage is one run of TestOutage.
type outage struct {
	*service
	t      *testing.T
	server string
}

func (o *outage) run(away, back func(), remaining uint32) {
	t := o.t
	testenv.Eventually(t, patience, func() bool {
		left := o.hit("d", costing(0, desc("exact", "x")))
		if left.LimitRemaining > 2 {
			o.hit("d", desc("exact", "x"))
		}
		return left.Code == ok && left.LimitRemaining == 2
	}, "3 of 5 hits are used")
	var crowd []*descriptor
	for _, policy := range []string{"allow", "deny", "local"} {
		for i := range 20 {
			crowd = append(crowd, desc(policy, fmt.Sprint(policy, i)))
		}
	}
	flow := o.pass(1000, envoysTimeout, crowd...)
	o.warm(crowd)
	settle(o.service, flow)
	before := o.footprint()

	inTime, all := o.decisions()
	lines := len(o.log.With(o.server))
	away()
	left := time.Now()
	first := o.crowd(50, desc("allow", "first"))
	testenv.Eventually(t, patience, func() bool { return o.readings(`rls_breaker_state{`)[o.server] > 0 }, "the breaker is open")
	opened := time.Now()
	later := o.crowd(300, desc("allow", "later"))
	lasts := outageLasts(t)
	atOnce, asked := o.waits()
	most := o.most(left.Add(lasts))
	atOnceNow, askedNow := o.waits()
	if got := o.readings(`rls_policy_active{`)[o.server]; got != 1 {
		t.Errorf("rls_policy_active is %v during the outage, want 1", got)
	}
	inTimeNow, allNow := o.decisions()
	back()
	returned := time.Now()
	testenv.Eventually(t, patience, func() bool {
		resp, err := o.try(patience, "d", costing(0, desc("exact", "x")))
		return err == nil && resp.OverallCode == ok && resp.Statuses[0].LimitRemaining == remaining
	}, "right decisions are back")
	right := time.Since(returned)
	testenv.Eventually(t, patience, func() bool { return len(o.log.With(o.server)) >= lines+2 }, "the log has a line for the outage and one for its end")
	told := o.log.With(o.server)[lines:]
	testenv.Eventually(t, patience, func() bool { return time.Since(returned) > time.Second }, "a second has passed")
	byPolicy := o.byPolicy()
	testenv.Eventually(t, patience, func() bool {
		return len(flow.since(returned.Add(time.Second))) > 1000
	}, "checks go on")
	byPolicy = o.byPolicy() - byPolicy
	got := flow.end()

	during := got.only(sentBetween(left, returned))
	after := got.only(sentAfter(returned.Add(time.Second)))
	stalled := float64(len(during) - len(during.only(flow.calm)))
	t.Logf("breaker open after %v; decided right %v after the return; %v of %v in 20 ms at the server; at the client %v, %v of them during a stall; goroutines %v then %v, MiB %.1f then %.1f",
		opened.Sub(left), right, inTimeNow-inTime, allNow-all, during.ends(), stalled,
		before.goroutines, most.goroutines, before.bytes/(1<<20), most.bytes/(1<<20))

	// The program's own measurement is not disturbed by the test's. But it may not
	// have run for some checks.
	// The first patient callers wait as long as they may; they are measured below.
	waited := float64(len(first.only(func(a sample) bool { return a.took > envoysTimeout })))
	if n, right := allNow-all-waited, inTimeNow-inTime; n < 900*lasts.Seconds()/2 || n-right > 0.001*n+stalled {
		t.Errorf("%v of %v checks had a verdict in 20 ms, want 99.9 %%; %v stalled", right, n, stalled)
	}
	// This does not depend on the machine: a check that asks a store that is away waits
	// as long as it may.
	if n, right := askedNow-asked, atOnceNow-atOnce; right < n/2 {
		t.Errorf("%v of %v checks waited for the store while it was away", n-right, n)
	}
	flow.atLeast(t, 0.99, func(a sample) bool { return a.code == codes.OK }, during, "checks have a verdict at the client during the outage")
	if n := len(during.only(func(a sample) bool { return a.code != codes.OK && a.code != codes.DeadlineExceeded })); n > 0 {
		t.Errorf("%d checks failed, want a verdict for each: %v", n, during.ends())
	}
	// A check may be on its way to the store when the outage begins or ends.
	steady := got.only(sentBetween(left.Add(envoysTimeout), returned.Add(-envoysTimeout)))
	for policy, wrong := range map[string]func(sample) bool{"allow": verdict(over), "deny": verdict(ok), "local": verdict(over)} {
		if n := len(steady.only(byRule(policy), wrong)); n > 0 {
			t.Errorf("%d verdicts are not those of on_error: %s", n, policy)
		}
	}
	if most.goroutines > before.goroutines+100 {
		t.Errorf("%v goroutines, %v before", most.goroutines, before.goroutines)
	}
	if most.bytes > before.bytes+16<<20 {
		t.Errorf("%.1f MiB, %.1f before", most.bytes/(1<<20), before.bytes/(1<<20))
	}
	for name, crowd := range map[string]struct {
		got    samples
		within time.Duration
	}{
		"at the beginning":          {first, decisionTimeout + 50*time.Millisecond},
		"while the breaker is open": {later, 100 * time.Millisecond},
	} {
		slow := crowd.got.only(func(a sample) bool { return !verdict(ok)(a) || a.took > crowd.within+flow.stalled(a) })
		slowest := slices.MaxFunc(crowd.got, func(a, b sample) int { return cmp.Compare(a.took, b.took) })
		t.Logf("%s the slowest of %d patient callers had its verdict after %v, in which %v stalled", name, len(crowd.got), slowest.took, flow.stalled(slowest))
		if len(slow) > len(crowd.got)/100 {
			t.Errorf("%s %d of %d patient callers had no verdict within %v: %v", name, len(slow), len(crowd.got), crowd.within, crowd.got.ends())
		}
	}
	if disturbed := flow.stalled(sample{sent: returned, took: right}); right > time.Second+disturbed {
		t.Errorf("right decisions were back after %v, in which %v stalled", right, disturbed)
	}
	flow.atLeast(t, 0.99, verdict(ok), after, "checks are right a second after the store's return")
	// On a machine that stalls, a server may seem away once more.
	if len(told) > 2 && stalled < busy*float64(len(during)) {
		t.Errorf("the log has %d lines about the server, want one when it goes and one when it is back: %q", len(told), told)
	}
	active := func() float64 { return o.readings(`rls_policy_active{`)[o.server] }
	stalledAfter := float64(len(after) - len(after.only(flow.calm)))
	if stalledAfter > busy*float64(len(after)) {
		t.Logf("not measured, because the machine stalled during %v of %d: that no policy decides a second after the store's return", stalledAfter, len(after))
		testenv.Eventually(t, patience, func() bool {
			_, err := o.try(patience, "d", desc("allow", "again"))
			return err == nil && active() == 0
		}, "rls_policy_active is 0 after the outage")
		return
	}
	if byPolicy > 0.001*float64(len(after))+stalledAfter {
		t.Errorf("policies decided %v of %d checks more than a second after the store's return; %v stalled", byPolicy, len(after), stalledAfter)
	}
	if got := active(); got != 0 {
		t.Errorf("rls_policy_active is %v after the outage, want 0", got)
	}
	if more := o.log.With(o.server)[lines+len(told):]; len(more) > 0 {
		t.Errorf("the log has %d lines about the server after its return, want none: %q", len(more), more)
	}
}

// warm has the program's memory grow to the size that load needs.
func (o *outage) warm(crowd []*descriptor) {
	together(100, 150, func(caller, n int) sample {
		return check(o.client, patience, "d", crowd[(caller+n)%len(crowd)])
	})
}

// most is the footprint that nine of ten measurements until a moment do not exceed:
// one of them may be made while the machine stands still and calls pile up.
func (o *outage) most(until time.Time) footprint {
	var goroutines, bytes []float64
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for time.Now().Before(until) {
		<-look.C
		now := o.footprint()
		goroutines, bytes = append(goroutines, now.goroutines), append(bytes, now.bytes)
	}
	slices.Sort(goroutines)
	slices.Sort(bytes)
	return footprint{goroutines[len(goroutines)*9/10], bytes[len(bytes)*9/10]}
}

// decisionTimeout is the default of DECISION_TIMEOUT.
const decisionTimeout = 150 * time.Millisecond

// crowd is callers who ask at once and have 30 seconds. It returns as soon as all
// were answered.
func (o *outage) crowd(callers int, d *descriptor) samples {
	return together(callers, 1, func(int, int) sample { return check(o.client, 30*time.Second, "d", d) })
}

// byRule selects the checks of users whose names begin with a key.
func byRule(key string) func(sample) bool {
	return func(a sample) bool { return len(a.user) > len(key) && a.user[:len(key)] == key }
}

// readings are the values of the metrics whose names and labels begin with a text,
// by the label server.
func (s *service) readings(start string) map[string]float64 {
	s.t.Helper()
	found := map[string]float64{}
	for _, m := range s.metrics(start) {
		found[m.label("server")] += m.value
	}
	return found
}

// metric is a line of /stats.
type metric struct {
	name  string // with labels
	value float64
}

// label is the value of a label, "" if there is none.
func (m metric) label(name string) string {
	_, rest, _ := strings.Cut(m.name, name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// metrics are the lines of /stats that begin with a text.
func (s *service) metrics(start string) []metric {
	s.t.Helper()
	_, text := s.get("debug", "/stats")
	var found []metric
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		end := max(0, strings.LastIndexByte(line, ' ')) // labels have spaces, too
		if n, err := strconv.ParseFloat(strings.TrimSpace(line[end:]), 64); err == nil && strings.HasPrefix(line, start) {
			found = append(found, metric{line[:end], n})
		}
	}
	return found
}

// footprint is the goroutines and the memory of the program.
type footprint struct{ goroutines, bytes float64 }

func (s *service) footprint() footprint {
	s.t.Helper()
	return footprint{s.stat("go_goroutines"), s.stat("process_resident_memory_bytes")}
}

// decisions counts the requests that had a verdict within 20 ms at the server, and
// all requests.
func (s *service) decisions() (inTime, all float64) {
	s.t.Helper()
	return s.under("rls_decision_duration_seconds", "0.02")
}

// under counts the observations of a histogram up to the bound of a bucket, without
// those of errors, and all.
func (s *service) under(histogram, bound string) (under, all float64) {
	s.t.Helper()
	for _, m := range s.metrics(histogram) {
		switch {
		case strings.Contains(m.name, "_count{"):
			all += m.value
		case m.label("le") == bound && m.label("result") != "error":
			under += m.value
		}
	}
	return under, all
}

// waits counts the requests that waited for the store for less than 5 ms, and all
// that asked it.
func (s *service) waits() (atOnce, all float64) {
	s.t.Helper()
	return s.under("rls_store_duration_seconds", "0.005")
}

// byPolicy counts the decisions that a policy made.
func (s *service) byPolicy() (n float64) {
	s.t.Helper()
	for _, m := range s.metrics("rls_decisions_total{") {
		if m.label("policy") != "counted" {
			n += m.value
		}
	}
	return n
}
