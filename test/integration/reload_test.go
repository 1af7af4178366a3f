package integration

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// manyRules has ten thousand rules besides the two that callers ask for; what
// differs from one generation to the next is a limit that nobody asks for.
func manyRules(generation int) string {
	var b strings.Builder
	b.WriteString("domain: all\ndescriptors:\n")
	b.WriteString("  - {key: wide, rate_limit: {unit: year, requests_per_unit: 4000000000}}\n")
	b.WriteString("  - {key: shut, rate_limit: {unit: year, requests_per_unit: 0}}\n")
	fmt.Fprintf(&b, "  - {key: generation, rate_limit: {unit: year, requests_per_unit: %d}}\n", generation)
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - {key: tenant, value: t%d, rate_limit: {unit: minute, requests_per_unit: %d}}\n", i, i)
	}
	return b.String()
}

// TestReloadsUnderLoad: while ten thousand rules are loaded again and again
// nobody gets a wrong answer, counters go on, and a reload holds up hardly
// anybody.
func TestReloadsUnderLoad(t *testing.T) {
	const reloads, callers, loads = 25, 4, `rls_config_loads_total{result="success"}`
	s := serve(t, manyRules(1))
	var stop atomic.Bool
	var counted, slow, calls atomic.Int64
	var running sync.WaitGroup
	for caller := range callers {
		client := s.in(t)
		client.client = s.dial()
		running.Go(func() {
			for !stop.Load() {
				begin := time.Now()
				key, want := "wide", ok
				if caller%2 == 1 {
					key, want = "shut", over
				}
				resp, err := client.try(patience, "all", desc(key, "x"))
				if err != nil || resp.OverallCode != want || resp.Statuses[0].CurrentLimit == nil {
					t.Errorf("%s: %v, %v", key, resp, err)
					return
				}
				calls.Add(1)
				if key == "wide" {
					counted.Add(1)
				}
				if time.Since(begin) > 20*time.Millisecond {
					slow.Add(1)
				}
			}
		})
	}
	for generation := 2; generation < 2+reloads; generation++ {
		before := s.stat(loads)
		s.write("rules.yaml", manyRules(generation))
		testenv.Eventually(t, patience, func() bool { return s.stat(loads) > before }, "another load")
	}
	s.inForce("all.generation: unit=YEAR requests_per_unit=" + strconv.Itoa(1+reloads) + ",")
	stop.Store(true)
	running.Wait()
	resp, err := s.try(patience, "all", desc("wide", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if got := 4_000_000_000 - int64(resp.Statuses[0].LimitRemaining) - 1; got != counted.Load() {
		t.Errorf("%d hits are counted after %d reloads, %d were sent", got, reloads, counted.Load())
	}
	// Other tests share the processors, so this is not a measurement: only a
	// reload that held everybody up would make every tenth call slow.
	if slow.Load() > calls.Load()/10 {
		t.Errorf("%d of %d calls took more than 20 ms", slow.Load(), calls.Load())
	}
}
