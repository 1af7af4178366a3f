package metrics_test

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/metrics/statsd"
)

// rules is the state of a process whose rules are replaced.
type rules struct {
	t       testing.TB
	metrics *metrics.Metrics
	tree    *descriptors.Tree
	now     time.Time
}

func newRules(t testing.TB, maxSeries int) *rules {
	r := &rules{t: t, now: time.Unix(1_700_000_000, 0)}
	r.metrics = open(t, metrics.Options{MaxSeries: maxSeries, NearLimitRatio: 1, Clock: func() time.Time { return r.now }})
	return r
}

// load puts rules of the domain d in force: one for each key. Keys that start
// with detailed_ count by the caller's value.
func (r *rules) load(keys ...string) {
	var b strings.Builder
	for _, key := range keys {
		detailed := strings.HasPrefix(key, "detailed_")
		fmt.Fprintf(&b, "- {key: %s, detailed_metric: %t, rate_limit: {unit: hour, requests_per_unit: 10}}\n", key, detailed)
	}
	r.put(b.String())
}

// put puts rules of the domain d in force.
func (r *rules) put(text string) {
	r.tree = tree(r.t, text)
	r.metrics.InForce(r.tree)
}

func (r *rules) hit(key, value string) {
	entry := descriptors.Entry{Key: key, Value: value}
	r.metrics.Observer().Observe(allowed(r.tree.Domain("d").Match([]descriptors.Entry{entry}), entry))
}

// override counts a hit of a limit that came with the request.
func (r *rules) override() {
	o := allowed(r.tree.Domain("d").Match([]descriptors.Entry{{Key: "stays"}}), descriptors.Entry{Key: "own"})
	o.Verdicts[0].Rule, o.Verdicts[0].Override = nil, true
	r.metrics.Observer().Observe(o)
}

// hits are the keys with their hits, by both sets of metrics.
func (r *rules) hits() (all []string) {
	text := strings.ReplaceAll(page(r.t, r.metrics), `limit="override"`, `limit="fixed_window 10 per hour"`)
	for line := range strings.Lines(text) {
		for _, prefix := range []string{`ratelimit_service_rate_limit_total_hits{domain="d",`, `rls_decisions_total{decision="allowed",domain="d",limit="fixed_window 10 per hour",policy="counted",`} {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				all = append(all, strings.ReplaceAll(text, `,strategy="fixed_window"`, ""))
			}
		}
	}
	return all
}

func (r *rules) want(when string, want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.hits()); diff != "" {
		r.t.Errorf("%s: %s", when, diff)
	}
}

// Counts of a rule that is gone are kept for an hour and then forgotten. A rule
// that comes back within the hour goes on counting, later it starts anew.
func TestRulesThatAreGoneAreForgotten(t *testing.T) {
	r := newRules(t, 100)
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	statsd := r.metrics.Statsd(statsd.NewSink("udp", server.LocalAddr().String(), nil, slog.New(slog.DiscardHandler)), time.Hour)
	r.load("stays", "goes", "detailed_goes")
	for _, key := range []string{"stays", "goes", "detailed_goes"} {
		r.hit(key, "v")
	}
	everything := []string{`key1="detailed_goes_v"} 1`, `key1="goes"} 1`, `key1="stays"} 1`, `rule="d.detailed_goes"} 1`, `rule="d.goes"} 1`, `rule="d.stays"} 1`}
	r.load("stays")
	r.now = r.now.Add(time.Hour - time.Second)
	r.want("a second before the hour is over", everything...)

	r.load("stays", "goes", "detailed_goes")
	r.now = r.now.Add(2 * time.Hour)
	r.hit("goes", "v")
	r.want("two hours after they came back", `key1="detailed_goes_v"} 1`, `key1="goes"} 2`, `key1="stays"} 1`,
		`rule="d.detailed_goes"} 1`, `rule="d.goes"} 2`, `rule="d.stays"} 1`)
	statsd.Send()

	r.load("stays")
	r.now = r.now.Add(time.Hour)
	r.want("an hour after they went", `key1="stays"} 1`, `rule="d.stays"} 1`)

	r.load("stays", "goes", "detailed_goes")
	for _, key := range []string{"stays", "goes", "detailed_goes"} {
		r.hit(key, "v")
	}
	r.want("after they came back late", `key1="detailed_goes_v"} 1`, `key1="goes"} 1`, `key1="stays"} 2`,
		`rule="d.detailed_goes"} 1`, `rule="d.goes"} 1`, `rule="d.stays"} 2`)
	statsd.Close()
	var sent []string
	datagram := make([]byte, 64<<10)
	for range 2 { // one of each Send
		if err := server.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := server.ReadFrom(datagram)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(datagram[:n])) {
			if name, ok := strings.CutPrefix(line, "ratelimit.service.rate_limit.d."); ok && strings.Contains(name, "total_hits") {
				sent = append(sent, strings.TrimSuffix(name, "\n"))
			}
		}
	}
	slices.Sort(sent)
	want := []string{
		"detailed_goes_v.total_hits:1|c", "detailed_goes_v.total_hits:1|c",
		"goes.total_hits:1|c", "goes.total_hits:2|c", "stays.total_hits:1|c", "stays.total_hits:1|c",
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
}

// Counts under a name that a caller made up are kept as long as the rule or the
// domain that they belong to.
func TestOverridesAreForgottenWithTheirDomain(t *testing.T) {
	r := newRules(t, 100)
	r.load("stays")
	r.override()
	r.load("stays")
	r.now = r.now.Add(2 * time.Hour)
	r.load("stays")
	r.now = r.now.Add(2 * time.Hour)
	r.want("with the domain", `key1="own"} 1`, `rule="d.override"} 1`)
	r.metrics.InForce(nil)
	r.now = r.now.Add(time.Hour)
	r.want("an hour without the domain")
}

// A forgotten name gives its room to another one.
func TestForgottenNamesGiveTheirRoomBack(t *testing.T) {
	r := newRules(t, 6) // one name
	r.load("detailed_a", "stays")
	r.hit("detailed_a", "v")
	r.hit("detailed_a", "w")
	r.want("one name and no more", `key1="detailed_a_v"} 1`, `key1="other"} 1`, `rule="d.detailed_a"} 2`)
	r.load("detailed_b", "stays")
	r.now = r.now.Add(time.Hour)
	r.metrics.InForce(r.tree)
	r.hit("detailed_b", "v")
	r.want("another name", `key1="detailed_b_v"} 1`, `rule="d.detailed_b"} 1`)
}

// A key that two rules have is kept with either of them.
func TestKeyOfTwoRules(t *testing.T) {
	r := newRules(t, 100)
	const (
		wild  = "- {key: k, value: v*, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 10}}\n"
		plain = "- {key: k, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 10}}\n"
	)
	r.put(wild + plain)
	r.hit("k", "v1")
	r.put(plain) // k_v1 matches this one from now on
	r.hit("k", "v1")
	r.put(plain)
	r.now = r.now.Add(2 * time.Hour)
	r.want("when the first rule is forgotten", `key1="k_v1"} 2`, `rule="d.k"} 1`)
}

// However often rules are replaced by others with other names, memory and
// /metrics stay small.
func TestReloadsDoNotGrowMemory(t *testing.T) {
	r := newRules(t, 1000)
	const names = 200
	reload := func(generation int) {
		keys := make([]string, names)
		for i := range keys {
			keys[i] = fmt.Sprintf("key_%d_%d", generation, i)
		}
		r.load(keys...)
		for _, key := range keys {
			r.hit(key, "v")
		}
		r.now = r.now.Add(time.Hour)
	}
	reload(0)
	before := heap()
	for generation := range 100 {
		reload(1 + generation)
	}
	if after := heap(); after > before+4<<20 {
		t.Errorf("%d KiB more than before", (after-before)>>10)
	}
	if text := page(t, r.metrics); len(text) > 3*names*1000 {
		t.Errorf("/metrics has %d bytes", len(text))
	}
	runtime.KeepAlive(r)
}
