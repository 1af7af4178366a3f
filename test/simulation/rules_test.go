package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
)

// rule is one limit for each value of the descriptor r0, r1, ..., or two.
type rule struct {
	spec    algorithms.Spec
	also    *rule // the limit beside it: a fixed window of alsoWindow
	local   bool  // on_error: local
	onError string
	lease   bool
	shadow  bool // shadow_mode
	quota   bool // quota_mode

	calendar *calendar // nil for windows of the clock
	unit     string    // the unit and the calendar in YAML; "" for seconds
}

const alsoWindow = 30 * time.Second

// window and capacity are those of the rule: capacity hits pass, or get a turn, at once.
func (r *rule) window() int64 { return r.spec.Window.Microseconds() }

func (r *rule) capacity() int64 {
	if r.spec.Burst > 0 && r.spec.Requests > 0 {
		return int64(r.spec.Burst) + r.queue()
	}
	return int64(r.spec.Requests)
}

// queue is how many hits can wait for their turn.
func (r *rule) queue() int64 {
	return (r.spec.MaxDelay.Microseconds()*int64(r.spec.Requests) + r.window() - 1) / r.window()
}

// beyond is the hits of a cost that passes while one hit remains.
func (r *rule) beyond() float64 {
	if r.spec.Overdraft > 0 {
		return maxCost - 1
	}
	return 0
}

func (r *rule) meter() bool {
	return r.spec.Strategy.HasBurst()
}

func (r *rule) clocked() bool {
	return r.spec.Strategy == algorithms.FixedWindow && !r.spec.FromFirstHit
}

const leaseTTL = 250 * time.Millisecond

// randomRule makes windows of seconds, or some of a calendar, which may be nil.
func randomRule(rng *rand.Rand, o *options, c *calendar) rule {
	r := rule{spec: algorithms.Spec{
		Strategy: algorithms.Strategy(rng.IntN(7)),
		Requests: []uint32{1, 3, 10, 40, 100}[rng.IntN(5)],
		Window:   []time.Duration{time.Second, 2 * time.Second, 10 * time.Second}[rng.IntN(3)],
	}}
	switch {
	case r.meter():
		r.spec.Burst = 1 + rng.Uint32N(2*r.spec.Requests)
	case r.spec.Strategy == algorithms.FixedWindow:
		r.spec.FromFirstHit = rng.IntN(3) == 0
		r.spec.Extend = r.spec.FromFirstHit && rng.IntN(2) == 0
		if !r.spec.FromFirstHit && c != nil {
			c.in(&r, rng.IntN(3))
		}
	case r.spec.Strategy == algorithms.SlidingWindow && rng.IntN(2) == 0:
		r.spec.Precision = 2 + rng.Uint32N(9)
	}
	switch rng.IntN(6) {
	case 0:
		r.shadow = true
	case 1, 2:
		r.quota = true
	}
	switch {
	case r.spec.Strategy == algorithms.LeakyBucket && rng.IntN(2) == 0:
		r.spec.MaxDelay = []time.Duration{100 * time.Millisecond, time.Second}[rng.IntN(2)]
	case !r.spec.FromFirstHit && rng.IntN(3) == 0:
		r.spec.Reserve.TTL = []time.Duration{time.Second, 4 * time.Second}[rng.IntN(2)]
	case rng.IntN(4) == 0:
		r.also = &rule{spec: algorithms.Spec{Requests: 1 + rng.Uint32N(3*r.spec.Requests), Window: alsoWindow}}
	}
	if (r.meter() || r.clocked()) && r.spec.MaxDelay == 0 && rng.IntN(3) == 0 {
		r.spec.Overdraft = maxCost + rng.Uint64N(3*uint64(r.spec.Requests))
	}
	further := r.spec.Overdraft > 0 || r.spec.Reserve.TTL > 0 || r.spec.Strategy == algorithms.Concurrency
	r.lease = o.leases && !further && r.also == nil && r.spec.MaxDelay == 0 && !r.spec.Extend && r.capacity() >= 10 && rng.IntN(2) == 0
	if o.local && rng.IntN(2) == 0 {
		r.local, r.onError = true, "local"
	} else if rng.IntN(2) == 0 {
		r.onError = []string{"allow", "deny", "error"}[rng.IntN(3)]
	}
	if r.also != nil {
		r.also.local, r.also.onError = r.local, r.onError
	}
	return r
}

// yamlOf writes the rules of the domain sim.
func yamlOf(rules []rule, charge string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: sim\ncharge: %s\ndescriptors:\n", charge)
	for i := range rules {
		r := &rules[i]
		fmt.Fprintf(&b, "  - key: r%d\n", i)
		indent := "    "
		if r.spec.Reserve.TTL > 0 {
			b.WriteString("    descriptors:\n    - key: id\n")
			indent = "      "
		}
		if r.shadow {
			b.WriteString(indent + "shadow_mode: true\n")
		}
		if r.quota {
			b.WriteString(indent + "quota_mode: true\n")
		}
		if r.also == nil {
			fmt.Fprintf(&b, "%srate_limit: %s\n", indent, r)
		} else {
			fmt.Fprintf(&b, "    rate_limits:\n      - %s\n      - %s\n", r, r.also)
		}
	}
	return b.String()
}

// String is the rule's limit in YAML.
func (r *rule) String() string {
	var b strings.Builder
	unit := r.unit
	if unit == "" {
		unit = fmt.Sprintf("unit: second, unit_multiplier: %d", r.spec.Window/time.Second)
	}
	fmt.Fprintf(&b, "{%s, requests_per_unit: %d, strategy: %v", unit, r.spec.Requests, r.spec.Strategy)
	if r.spec.Burst > 0 {
		fmt.Fprintf(&b, ", burst: %d", r.spec.Burst)
	}
	if r.spec.MaxDelay > 0 {
		fmt.Fprintf(&b, ", max_delay: %v", r.spec.MaxDelay)
	}
	if r.spec.Precision > 0 {
		fmt.Fprintf(&b, ", precision: %d", r.spec.Precision)
	}
	if r.spec.Overdraft > 0 {
		fmt.Fprintf(&b, ", overdraft: %d", r.spec.Overdraft)
	}
	if r.spec.Reserve.TTL > 0 {
		fmt.Fprintf(&b, ", reserve: {ttl: %v}", r.spec.Reserve.TTL)
	}
	if r.spec.FromFirstHit {
		fmt.Fprintf(&b, ", window: from_first_hit, extend: %v", r.spec.Extend)
	}
	if r.lease {
		fmt.Fprintf(&b, ", lease: {share: 20%%, ttl: %v}", leaseTTL)
	}
	if r.onError != "" {
		fmt.Fprintf(&b, ", on_error: %s", r.onError)
	}
	b.WriteString("}")
	return b.String()
}

func compile(text string) *descriptors.Tree {
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(text)}}, yaml.Options{})
	if err != nil {
		panic(fmt.Sprintf("%v\n%s", err, text))
	}
	return tree
}
