package docs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
)

const minute = int64(time.Minute / time.Microsecond)

// traffic is when hits come, in µs since a round minute, by the name that the
// table in docs/strategies.md has for it. Each offers three times the limit of
// 100 a minute for an hour, or as much as the pulses do.
var traffic = map[string]func() []int64{
	"evenly spaced": func() (at []int64) {
		for t := int64(0); t < 60*minute; t += minute / 300 {
			at = append(at, t)
		}
		return at
	},
	"at random": func() (at []int64) {
		rng := rand.New(rand.NewPCG(1, 2))
		for t := 0.0; t < float64(60*minute); t += rng.ExpFloat64() * float64(minute) / 300 {
			at = append(at, int64(t))
		}
		return at
	},
	"in bursts at random": func() (at []int64) {
		rng := rand.New(rand.NewPCG(3, 4))
		for t := 0.0; t < float64(60*minute); t += rng.ExpFloat64() * float64(minute) / 10 {
			for range 30 {
				at = append(at, int64(t))
			}
		}
		return at
	},
	"pulses at the ends of windows": func() (at []int64) {
		for pulse := range int64(60) { // each 1 ms earlier in its window than the one before
			for range 300 {
				at = append(at, (pulse+1)*minute-(pulse+1)*1000)
			}
		}
		return at
	},
}

// TestFigures measures the figures of the table of traffic, whose columns are strategies with
// their fields.
func TestFigures(t *testing.T) {
	rows := 0
	for _, p := range parts(t, strategiesDoc) {
		if !p.isTable() || p.rows[0][0] != "traffic" {
			continue
		}
		for _, row := range p.rows[1:] {
			rows++
			come := traffic[row[0]]
			if come == nil {
				t.Errorf("%s:%d: no traffic %q is measured", strategiesDoc, p.line, row[0])
				continue
			}
			for i, says := range row[1:] {
				strategy := strings.ReplaceAll(p.rows[0][i+1], "`", "")
				if most := strconv.Itoa(mostInAMinute(t, strategy, come())); most != says {
					t.Errorf("%s:%d: %s, %s: %s pass within a minute, the table says %s", strategiesDoc, p.line, row[0], strategy, most, says)
				}
			}
		}
	}
	if rows != len(traffic) {
		t.Errorf("%s has figures of %d of %d kinds of traffic", strategiesDoc, rows, len(traffic))
	}
}

// mostInAMinute is the most hits that a limit of 100 a minute with a strategy and its fields
// lets through in any minute.
func mostInAMinute(t *testing.T, strategy string, come []int64) int {
	return most(passes(t, 100, strategy, come, 0))
}

// most is the most of sorted times that lie within a minute.
func most(passed []int64) (n int) {
	first := 0
	for i, at := range passed {
		for passed[first] <= at-minute {
			first++
		}
		n = max(n, i+1-first)
	}
	return n
}

// passes is when the hits pass that come at these times, in order: at once, or when the queue lets
// them. The limit is requests a minute with a strategy and its fields. Each hit is given back after
// takes µs, or never with 0.
func passes(t *testing.T, requests int, strategy string, come []int64, takes int64) (passed []int64) {
	t.Helper()
	rule := fmt.Sprintf("rate_limit: {unit: minute, requests_per_unit: %d, strategy: %s}", requests, strategy)
	limit, _ := loadRule(t, rule)
	store, err := memory.New(memory.Options{MaxKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	start := parseTime(t, "00:00:00")
	charge := func(c algorithms.Charge) algorithms.Decision {
		b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
		limit.Plan(&b.Ops[0], algorithms.Identity{ID: []byte("shop|user=alice")}, c)
		if err := store.Apply(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		return limit.Judge(&b.Ops[0], &b.Replies[0])
	}
	returned := 0
	for _, at := range come {
		for takes > 0 && returned < len(passed) && passed[returned]+takes <= at {
			charge(algorithms.Charge{Now: start + passed[returned] + takes, Cost: 1, Refund: true})
			returned++
		}
		if d := charge(algorithms.Charge{Now: start + at, Cost: 1, Patience: minute}); d.Allowed {
			passed = append(passed, at+d.Delay.Microseconds())
		}
	}
	return passed
}
