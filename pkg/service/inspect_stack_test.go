package service_test

import (
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/service"
)

// yearly has a limit of 10 for each strategy. No window ends and no bucket refills
// during a test.
const yearly = `domain: d
descriptors:
- {key: fixed, rate_limit: {unit: year, requests_per_unit: 10}}
- {key: first, rate_limit: {unit: year, requests_per_unit: 10, window: from_first_hit}}
- {key: extended, rate_limit: {unit: year, requests_per_unit: 10, window: from_first_hit, extend: true}}
- {key: sliding, rate_limit: {unit: year, requests_per_unit: 10, strategy: sliding_window}}
- {key: log, rate_limit: {unit: year, requests_per_unit: 10, strategy: sliding_log}}
- {key: bucket, rate_limit: {unit: year, requests_per_unit: 10, strategy: token_bucket}}
- {key: gcra, rate_limit: {unit: year, requests_per_unit: 10, burst: 10, strategy: gcra}}
- {key: leaky, rate_limit: {unit: year, requests_per_unit: 10, strategy: leaky_bucket}}
- {key: leased, rate_limit: {unit: year, requests_per_unit: 10000, lease: {share: 10%, ttl: 10s}}}
`

var everyYearly = []string{"fixed", "first", "extended", "sliding", "log", "bucket", "gcra", "leaky"}

// onStacks runs test with two services that share a store: each with a stack as serve
// builds it, with a local cache.
func onStacks(t *testing.T, test func(t *testing.T, one, other *rig)) {
	const timeout = 20 * time.Second // the machine may be busy
	for name, open := range map[string]func(*testing.T) func() (backends.Store, error){
		"redis": func(t *testing.T) func() (backends.Store, error) {
			server := testenv.Redis(t)
			return func() (backends.Store, error) {
				return redis.Open(redis.Options{URL: server.Addr, Timeout: timeout})
			}
		},
		"memcached": func(t *testing.T) func() (backends.Store, error) {
			server := testenv.Memcached(t)
			return func() (backends.Store, error) {
				return memcached.Open(memcached.Options{Servers: []string{server.Addr}, Timeout: timeout})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			openStore := open(t)
			process := func() *rig {
				return start(t, yearly, func(c *config) {
					store, err := openStore()
					if err != nil {
						t.Fatal(err)
					}
					if c.Store, err = stack.Build(stack.Options{Main: stack.Tier{Store: store, Timeout: timeout}, LocalCache: 1 << 20}); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = c.Store.Close() })
				})
			}
			test(t, process(), process())
		})
	}
}

// TestLookReadsTheStore: both processes see the same counts, also where one of them
// remembers a full cell or holds a lease, and a look charges nothing.
func TestLookReadsTheStore(t *testing.T) {
	onStacks(t, func(t *testing.T, one, other *rig) {
		look := func(r *rig, key string) service.State {
			seen := only(t, r.inspect(service.Look, request(desc(key, "a"))))
			if seen.Err != nil {
				t.Fatalf("%s: %v", key, seen.Err)
			}
			return *seen.Before
		}
		for _, key := range everyYearly {
			one.hit(withHits(3, desc(key, "a")))
			for _, r := range []*rig{one, other, one} {
				if seen := look(r, key); seen.Count != 3 || seen.Remaining != 7 {
					t.Errorf("%s, after 3 hits: %+v", key, seen)
				}
			}
			one.hit(withHits(7, desc(key, "a")))
			one.want(withHits(5, desc(key, "a")), over, 0) // one remembers that the cell is full
			other.hit(refund(4, desc(key, "a")))
			fixed := key == "fixed" || key == "first" || key == "extended" // they have counted the denied hits
			for _, r := range []*rig{one, other} {
				if seen := look(r, key); !fixed && seen.Remaining != 4 || fixed && seen.Count != 11 {
					t.Errorf("%s, after a denial and a refund: %+v", key, seen)
				}
			}
		}
		for range 200 {
			one.hit(desc("leased", "a"))
		}
		// What a process holds is charged in the store, and counts.
		testenv.Eventually(t, 20*time.Second, func() bool {
			before := look(other, "leased")
			for range 50 {
				look(one, "leased")
			}
			return before.Count >= 200 && look(one, "leased").Count == before.Count && look(other, "leased").Count == before.Count
		}, "looks change no count")
	})
}

// TestChangesHoldForEveryProcess: a reset and a grant hold at once in the process
// that was asked, and within a second in the others.
func TestChangesHoldForEveryProcess(t *testing.T) {
	onStacks(t, func(t *testing.T, one, other *rig) {
		for caller, do := range map[string]service.Action{"reset": service.Reset, "granted": service.Grant(10)} {
			for _, key := range everyYearly {
				for _, r := range []*rig{one, one, other} { // both remember that the cell is full
					r.hit(withHits(10, desc(key, caller)))
				}
				was := only(t, one.inspect(do, request(desc(key, caller))))
				if was.Err != nil || was.Before.Remaining != 0 || was.After == nil || was.After.Remaining != 10 {
					t.Errorf("%s, %s: %+v, then %+v, %v", key, caller, was.Before, was.After, was.Err)
					continue
				}
				one.want(withHits(4, desc(key, caller)), ok, 6)
			}
			for _, key := range everyYearly {
				testenv.Eventually(t, 20*time.Second, func() bool {
					return other.hit(desc(key, caller)).Code == ok
				}, "the other process knows that the cell has room")
			}
		}
	})
}
