package service_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

const borrowing = `domain: d
charge: CHARGE
pools: {spare: {unit: hour, requests_per_unit: 10}}
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 5, borrow_from: spare, max_borrow: 40%}}
- {key: job, rate_limit: {unit: hour, requests_per_unit: 2, borrow_from: spare}}
- {key: zero, rate_limit: {unit: hour, requests_per_unit: 0, borrow_from: spare, max_borrow: 1%}}
- {key: several, rate_limits: [{unit: minute, requests_per_unit: 2, borrow_from: spare}, {unit: hour, requests_per_unit: 4}]}
- {key: plain, rate_limit: {unit: hour, requests_per_unit: 3}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, borrow_from: spare}}
- {key: tried, rate_limit: {unit: hour, requests_per_unit: 1, borrow_from: spare, shadow_mode: true}}
- {key: quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, borrow_from: spare, max_borrow: 10%}}
- {key: quota2, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
`

func lending(charge string) string { return strings.Replace(borrowing, "CHARGE", charge, 1) }

// pooled is what the pool has left: what a job that has used its own hits could still borrow.
func (r *rig) pooled() uint32 {
	r.t.Helper()
	r.hit(withHits(2, desc("job", "probe")))
	return r.hit(withHits(0, desc("job", "probe"))).LimitRemaining
}

func TestHitsAreBorrowed(t *testing.T) {
	for _, charge := range []string{"always", "admitted"} {
		r := start(t, lending(charge), func(c *config) { c.Reply = envoy.Reply{Metadata: true} })
		for left := range uint32(5) {
			r.want(desc("user", "a"), ok, 4-left)
		}
		// A check of a full limit shows what could be borrowed, and charges nothing.
		r.want(withHits(0, desc("user", "a")), ok, 4)
		for left := range uint32(3) {
			r.want(desc("user", "a"), ok, 3-left)
		}
		// All of the cost or nothing.
		r.want(withHits(2, desc("user", "a")), over, 0)
		resp := r.call(request(desc("user", "a")))
		if m := resp.DynamicMetadata.AsMap(); m["borrowed"] != true || m["remaining"] != 0.0 || m["limit"] != 5.0 {
			t.Errorf("metadata %v", m)
		}
		r.want(withHits(0, desc("user", "a")), ok, 0)
		// The own window ends first, then a cost that is no more than the pool gives at all.
		if s := r.hit(desc("user", "a")); s.Code != over || s.DurationUntilReset.AsDuration() != 50*time.Second {
			t.Errorf("%v", s)
		}
		if m := r.call(request(desc("user", "a"))).DynamicMetadata.AsMap(); m["borrowed"] != nil || m["retry_after"] != 50.0 {
			t.Errorf("metadata %v", m)
		}
		// Others have the rest of the pool, 6 hits, and none of it is left then.
		r.want(withHits(2, desc("job", "a")), ok, 0)
		r.want(withHits(6, desc("job", "a")), ok, 0)
		r.want(desc("job", "b"), ok, 1)
		r.want(withHits(2, desc("job", "b")), over, 0)
		// None of what was borrowed, or denied, is charged to the limit itself.
		if used := r.used(desc("user", "a")); used[0] != 5 {
			t.Errorf("the limit counts %d", used)
		}
		// A refund goes to the limit.
		r.want(refund(1, desc("user", "a")), ok, 1)
		r.want(desc("user", "a"), ok, 0)
		r.pass(time.Minute)
		r.want(desc("user", "a"), ok, 4)
	}
}

// A descriptor whose pool could not help charges nothing, and keeps nothing from being charged
// that another descriptor of the request borrows.
func TestABorrowerBesideADeniedOne(t *testing.T) {
	r := start(t, lending("always"))
	resp := r.call(request(withHits(3, desc("several", "a")), withHits(9, desc("several", "b"))))
	if resp.Statuses[0].Code != ok || resp.Statuses[1].Code != over {
		t.Errorf("%v", resp)
	}
	if used := r.used(desc("several", "a")); used[0] != 0 || used[1] != 3 {
		t.Errorf("%v hits in use, want none of the limit that borrows and 3 of the other one", used)
	}
	if left := r.pooled(); left != 7 {
		t.Errorf("the pool has %d hits left, want 7", left)
	}
}

// What is sooner counts, but for waits after which the cost would still not fit.
func TestRetryAfterOfABorrower(t *testing.T) {
	for _, tt := range []struct {
		pool, limit string
		hits        uint64
		want        time.Duration
	}{
		{"unit: minute, requests_per_unit: 4", "unit: hour, requests_per_unit: 2", 1, 50 * time.Second},
		{"unit: hour, requests_per_unit: 4", "unit: minute, requests_per_unit: 2", 1, 50 * time.Second},
		{"unit: minute, requests_per_unit: 4", "unit: hour, requests_per_unit: 9", 9, 3590 * time.Second}, // the pool never has 9
		{"unit: hour, requests_per_unit: 9", "unit: minute, requests_per_unit: 2", 9, 3590 * time.Second}, // the limit never has 9
		{"unit: minute, requests_per_unit: 6, strategy: token_bucket, burst: 2", "unit: hour, requests_per_unit: 2", 1, 10 * time.Second},
	} {
		r := start(t, fmt.Sprintf("domain: d\npools: {spare: {%s}}\ndescriptors: [{key: user, rate_limit: {%s, borrow_from: spare}}]\n", tt.pool, tt.limit))
		for range 20 {
			r.hit(desc("user", "a"))
		}
		if s := r.hit(withHits(tt.hits, desc("user", "a"))); s.Code != over || s.DurationUntilReset.AsDuration() != tt.want {
			t.Errorf("%s beside %s: %v, want %v", tt.pool, tt.limit, s, tt.want)
		}
	}
}

// A descriptor is charged to the pool and to its other limits, or to none of them.
func TestBorrowingBesideOtherLimits(t *testing.T) {
	r := start(t, lending("always"))
	several := desc("several", "a")
	r.want(withHits(2, several), ok, 0)
	r.want(desc("several", "a"), ok, 1) // of the hour's
	r.want(desc("several", "a"), ok, 0)
	if used := r.used(several); used[0] != 2 || used[1] != 4 {
		t.Errorf("counts %d", used)
	}
	// The hour's limit denies, and lends nothing.
	r.want(desc("several", "a"), over, 0)
	if left := r.pooled(); left != 8 {
		t.Errorf("%d left in the pool", left)
	}
	// With an empty pool the hour's limit is not charged.
	r.hit(withHits(8, desc("job", "probe")))
	r.hit(withHits(2, desc("several", "b")))
	r.want(desc("several", "b"), over, 0)
	if used := r.used(desc("several", "b")); used[0] != 2 || used[1] != 2 {
		t.Errorf("counts %d", used)
	}
	// At least one hit can be borrowed, also by a limit of 0.
	r = start(t, lending("always"))
	r.want(desc("zero", "a"), ok, 0)
	r.want(desc("zero", "a"), over, 0)
	r.want(withHits(2, desc("zero", "b")), over, 0)
}

// A request that is charged as a whole borrows as a whole.
func TestBorrowingOfAWholeRequest(t *testing.T) {
	r := start(t, lending("admitted"))
	r.hit(withHits(5, desc("user", "a")))
	both := request(desc("user", "a"), desc("plain", "a"))
	for i := range 3 {
		if resp := r.call(both); resp.OverallCode != ok || resp.Statuses[0].LimitRemaining != uint32(3-i) {
			t.Fatal(resp)
		}
	}
	// A limit that cannot borrow denies: nothing is borrowed, and the borrower's own verdict is
	// that it could.
	for range 2 {
		if resp := r.call(both); resp.OverallCode != over || resp.Statuses[0].Code != ok || resp.Statuses[0].LimitRemaining != 1 || resp.Statuses[1].Code != over {
			t.Error(resp)
		}
	}
	if resp := r.call(request(withHits(2, desc("user", "a")), desc("plain", "a"))); resp.Statuses[0].Code != over {
		t.Error(resp)
	}
	if left := r.pooled(); left != 7 {
		t.Errorf("%d left in the pool", left)
	}
	// The pool denies: the other limit is not charged.
	r = start(t, lending("admitted"))
	r.hit(withHits(5, desc("user", "a")))
	r.hit(withHits(4, desc("user", "a")))
	if resp := r.call(both); resp.OverallCode != over || resp.Statuses[1].Code != ok {
		t.Error(resp)
	}
	if used := r.used(desc("plain", "a")); used[0] != 0 {
		t.Errorf("counts %d", used)
	}
	// In quota mode one of them passes, by borrowing or by itself.
	r.hit(desc("quota", "a"))
	quota := request(desc("quota", "a"), desc("quota2", "a"))
	for i, want := range []pb.RateLimitResponse_Code{ok, ok, over} {
		if resp := r.call(quota); resp.OverallCode != want {
			t.Errorf("request %d: %v", i, resp)
		}
	}
	if used := r.used(desc("quota2", "a")); used[0] != 2 {
		t.Errorf("counts %d", used)
	}
	if left := r.pooled(); left != 5 {
		t.Errorf("%d left in the pool", left)
	}
}

// Metadata say that hits are borrowed, whichever limit or descriptor they describe, if the pool
// has been charged.
func TestMetadataOfABorrowerBesideOthers(t *testing.T) {
	user, hour := func() *rlcommon.RateLimitDescriptor { return desc("user", "a") }, func() *rlcommon.RateLimitDescriptor { return desc("several", "a") }
	for name, tt := range map[string]struct {
		charge string
		before []*rlcommon.RateLimitDescriptor
		ask    *pb.RateLimitRequest
		rule   string
		want   any
	}{
		"another descriptor has less left": {"always", []*rlcommon.RateLimitDescriptor{withHits(5, user()), withHits(2, desc("plain", "a"))}, request(user(), desc("plain", "a")), "d.plain", true},
		"another limit has less left":      {"always", []*rlcommon.RateLimitDescriptor{withHits(2, hour()), hour()}, request(hour()), "d.several", true},
		"it borrows nothing":               {"always", []*rlcommon.RateLimitDescriptor{withHits(2, desc("plain", "a"))}, request(user(), desc("plain", "a")), "d.plain", nil},
		"another descriptor denies":        {"always", []*rlcommon.RateLimitDescriptor{withHits(5, user())}, request(user(), withHits(4, desc("plain", "a"))), "d.plain", true},
		"another one denies for both":      {"admitted", []*rlcommon.RateLimitDescriptor{withHits(5, user())}, request(user(), withHits(4, desc("plain", "a"))), "d.plain", nil},
		"another limit denies for both":    {"always", []*rlcommon.RateLimitDescriptor{withHits(2, hour()), withHits(2, hour())}, request(hour()), "d.several", nil},
		"a watched limit borrows":          {"always", []*rlcommon.RateLimitDescriptor{withHits(1, desc("tried", "a"))}, request(desc("tried", "a"), desc("plain", "a")), "d.plain", nil},
		"a rule in shadow mode borrows":    {"always", []*rlcommon.RateLimitDescriptor{withHits(1, desc("shadow", "a"))}, request(desc("shadow", "a"), desc("plain", "a")), "d.plain", nil},
		"a check":                          {"always", []*rlcommon.RateLimitDescriptor{withHits(5, user())}, request(withHits(0, user()), withHits(3, desc("plain", "a"))), "d.plain", true},
	} {
		r := start(t, lending(tt.charge), replying(envoy.Reply{Metadata: true}))
		for _, d := range tt.before {
			r.hit(d)
		}
		if m := r.call(tt.ask).DynamicMetadata.AsMap(); m["rule"] != tt.rule || m["borrowed"] != tt.want {
			t.Errorf("%s: metadata %v", name, m)
		}
	}
}

// A limit that is not enforced takes nothing from the pool, but counts what it would borrow.
func TestBorrowingInShadowMode(t *testing.T) {
	for _, charge := range []string{"always", "admitted"} {
		for _, key := range []string{"shadow", "tried"} {
			r := start(t, lending(charge))
			for i := range 13 {
				o, err := r.service.Decide(t.Context(), &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: key, Value: "a"}}}}})
				if err != nil {
					t.Fatal(err)
				}
				if s := o.Statuses[0]; o.Over || s.ShadowDenied || s.WatchedDenied != (key == "tried" && i > 10) {
					if !(key == "shadow" && i > 10 && s.ShadowDenied) {
						t.Errorf("%s, request %d: %+v", key, i, s)
					}
				}
			}
			if left := r.pooled(); left != 10 {
				t.Errorf("%s: %d left in the pool", key, left)
			}
		}
	}
	// If nothing is enforced, the pool is charged as if all were.
	r := start(t, lending("always"), func(c *config) { c.ShadowMode = true })
	r.hit(withHits(2, desc("job", "a")))
	r.hit(withHits(9, desc("job", "a")))
	if left := r.pooled(); left != 1 {
		t.Errorf("%d left in the pool", left)
	}
}

// An override borrows as its rule does, and keys do not depend on CACHE_KEY_FORMAT.
func TestKeysOfAPool(t *testing.T) {
	var s seen
	r := start(t, lending("always"), s.under, func(c *config) { c.KeyPrefix, c.RatelimitKeys = "p_", true })
	r.hit(withLimit(0, hour, nil, desc("user", "a|b")))
	var keys []string
	for _, op := range s.ops {
		keys = append(keys, op.Key)
	}
	want := []string{"p_d_user_a|b_1800057600", "p_d|pool=spare|1h|500016~pool", "p_d|user=a%7Cb|borrow=spare|1h|500016~borrow"}
	if !slices.Equal(keys, want) {
		t.Errorf("got %q, want %q", keys, want)
	}
	r = start(t, lending("always"), func(c *config) { c.Values = service.NewValueHash([]byte("secret")) })
	r.hit(withHits(2, desc("job", "a")))
	r.want(desc("job", "a"), ok, 9)
}

// While the store is away, the policy of the limit decides, and nothing is borrowed.
func TestBorrowingWhileTheStoreIsAway(t *testing.T) {
	for policy, want := range map[string]pb.RateLimitResponse_Code{"allow": ok, "deny": over, "error": unavailable, "local": unavailable} {
		for _, pool := range []string{"pool", "borrow"} {
			rules := strings.ReplaceAll(lending("always"), "max_borrow: 40%}", "max_borrow: 40%, on_error: "+policy+"}")
			var away atomic.Bool
			r := start(t, rules, func(c *config) {
				c.Store = awayFor{c.Store, &away, "|" + pool + "=spare"}
				c.Reply = envoy.Reply{Metadata: true}
			})
			r.hit(withHits(5, desc("user", "a")))
			away.Store(true)
			resp, err := r.try(request(desc("user", "a")))
			code := unavailable
			if err == nil {
				code = resp.OverallCode
				if m := resp.DynamicMetadata.AsMap(); m["policy"] != policy && m["policy"] != nil || m["borrowed"] != nil {
					t.Errorf("%s: metadata %v", policy, m)
				}
			}
			if code != want {
				t.Errorf("%s, %s away: %v, %v", policy, pool, resp, err)
			}
			away.Store(false)
			if left := r.pooled(); left < 9 { // the part that was not away may have been charged where the policy allows
				t.Errorf("%s: %d left in the pool", policy, left)
			}
		}
	}
}

// A pool has metrics as a rule has; a limit whose hits are borrowed has allowed them.
func TestMetricsOfAPool(t *testing.T) {
	var m *metrics.Metrics
	r := start(t, lending("always"), measure(t, &m))
	r.hit(withHits(2, desc("job", "a")))
	r.hit(withHits(10, desc("job", "a")))
	r.hit(withHits(1, desc("job", "a")))
	r.hit(withHits(3, desc("shadow", "a")))
	got := counted(t, m, "ratelimit_service_rate_limit_total_hits", "ratelimit_service_rate_limit_within_limit", "ratelimit_service_rate_limit_over_limit", "rls_decisions_total{decision=\"denied\"")
	want := []string{
		`over_limit{domain="d",key1="job"} 1`, `over_limit{domain="d",key1="pool_spare"} 1`, `over_limit{domain="d",key1="shadow"} 3`,
		`rls_decisions_total{decision="denied",domain="d",limit="fixed_window 10 per hour",policy="counted",rule="d.pool_spare",strategy="fixed_window"} 1`,
		`rls_decisions_total{decision="denied",domain="d",limit="fixed_window 2 per hour",policy="counted",rule="d.job",strategy="fixed_window"} 1`,
		`total_hits{domain="d",key1="job"} 13`, `total_hits{domain="d",key1="pool_spare"} 11`, `total_hits{domain="d",key1="shadow"} 3`,
		`within_limit{domain="d",key1="job"} 12`, `within_limit{domain="d",key1="pool_spare"} 10`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// awayFor is a store that leaves operations undecided whose key has a text, while it is away.
type awayFor struct {
	backends.Store
	away *atomic.Bool
	text string
}

func (s awayFor) Apply(ctx context.Context, b *backends.Batch) error {
	if s.away.Load() && slices.ContainsFunc(b.Ops, func(op backends.Op) bool { return strings.Contains(op.Key, s.text) }) {
		return b.Fail(backends.ErrUnavailable)
	}
	return s.Store.Apply(ctx, b)
}

// Each strategy lends its capacity, burst included, and each limit of any strategy borrows.
func TestStrategiesOfPools(t *testing.T) {
	strategies := slices.DeleteFunc(algorithms.Names(), func(name string) bool { return name == algorithms.Concurrency.String() })
	for _, pool := range strategies {
		for _, own := range strategies {
			burst := ""
			if slices.Contains(algorithms.WithBurst(), pool) {
				burst = ", burst: 20"
			}
			tree, _, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: fmt.Appendf(nil, `domain: d
pools: {spare: {unit: day, requests_per_unit: 20, strategy: %s%s}}
descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 3, strategy: %s, borrow_from: spare, max_borrow: 25%%}}]
`, pool, burst, own)}}, yaml.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, "")
			r.service.SetTree(tree)
			capacity := tree.Domain("d").Match([]descriptors.Entry{{Key: "user", Value: "x"}}).Limits[0].Capacity()
			total := int64(0)
			for user := range 6 {
				passed := int64(0)
				for range 12 {
					if r.hit(desc("user", fmt.Sprint(user))).Code == ok {
						passed++
					}
				}
				if user < 4 && passed != capacity+5 || user >= 4 && passed != capacity {
					t.Errorf("%s from %s: %d of user %d passed", own, pool, passed, user)
				}
				total += passed - capacity
			}
			if total != 20 {
				t.Errorf("%s from %s: %d borrowed", own, pool, total)
			}
		}
	}
}

// pools is a brute-force model of limits, a pool and what keys borrow, in windows that do not
// end. cells are the hits in use by the name of a cell.
type pools struct {
	whole bool // charge: admitted
	late  bool // what a denied descriptor took of the pool comes back after its request
	cells map[string]uint64
}

var modelled = map[string]uint64{"user": 5, "job": 3, "plain": 6, "pool": 40, "borrow-user": 10, "borrow-job": 40}

const modelledRules = `domain: d
charge: CHARGE
pools: {spare: {unit: year, requests_per_unit: 40, strategy: POOL}}
descriptors:
- {key: user, rate_limit: {unit: year, requests_per_unit: 5, borrow_from: spare, max_borrow: 25%}}
- {key: job, rate_limit: {unit: year, requests_per_unit: 3, strategy: sliding_window, borrow_from: spare}}
- {key: plain, rate_limit: {unit: year, requests_per_unit: 6}}
`

// costs is one descriptor of a request.
type costs struct {
	key, value string
	hits       uint64
}

// cellsOf are the cells that d is charged to, and their kinds.
func (d costs) cellsOf(borrows bool) map[string]string {
	if borrows {
		return map[string]string{"pool": "pool", "borrow-" + d.key + "=" + d.value: "borrow-" + d.key}
	}
	return map[string]string{d.key + "=" + d.value: d.key}
}

// batch tries each descriptor in order, and then charges those of which all cells have room,
// or none if whole is set and one is denied. A descriptor that is denied takes no room from those
// after it in the request, unless late is set.
func (m *pools) batch(request []costs, asked, borrows []bool, whole bool) (allowed []bool) {
	tried := maps.Clone(m.cells)
	all := true
	for i, d := range request {
		fits, before := true, maps.Clone(tried)
		for cell, kind := range d.cellsOf(borrows[i]) {
			room := asked[i] && tried[cell]+d.hits <= modelled[kind]
			if fits = fits && room; room || asked[i] && kind == "plain" && !m.whole {
				tried[cell] += d.hits
			}
		}
		if borrows[i] && !fits && !m.late {
			tried = before
		}
		allowed, all = append(allowed, fits), all && fits
	}
	for i, d := range request {
		for cell, kind := range d.cellsOf(borrows[i]) {
			if denied := !m.whole && kind == "plain" && !allowed[i] && asked[i]; allowed[i] && (all || !whole) || denied {
				m.cells[cell] += d.hits // a plain fixed window counts denied hits, too
			}
		}
	}
	return allowed
}

// decide decides a request, and returns the verdict of each descriptor.
func (m *pools) decide(request []costs) []bool {
	every := slices.Repeat([]bool{true}, len(request))
	allowed := m.batch(request, every, make([]bool, len(request)), m.whole)
	denied := make([]bool, len(request))
	plain, refused := false, false
	for i, d := range request {
		denied[i] = !allowed[i]
		refused, plain = refused || denied[i], plain || denied[i] && d.key == "plain"
	}
	switch {
	case !refused:
		return allowed
	case m.whole && plain: // nothing is charged, and each borrower is told whether it could borrow
		for i, d := range request {
			lends := denied[i] && d.key != "plain"
			for cell, kind := range d.cellsOf(true) {
				lends = lends && m.cells[cell]+d.hits <= modelled[kind]
			}
			allowed[i] = allowed[i] || lends
		}
		return allowed
	case m.whole:
		return m.batch(request, every, denied, true)
	}
	asked := make([]bool, len(request))
	for i, d := range request {
		asked[i] = denied[i] && d.key != "plain"
	}
	for i, borrowed := range m.batch(request, asked, asked, false) {
		allowed[i] = allowed[i] || asked[i] && borrowed
	}
	return allowed
}

// stores are the stores of which each must decide as the model does.
func stores(t *testing.T) map[string]backends.Store {
	opened := map[string]backends.Store{}
	const patience = 20 * time.Second
	open := func(name string, timeout time.Duration, store backends.Store, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if opened[name], err = stack.Build(stack.Options{Main: stack.Tier{Store: store, Timeout: timeout}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
	}
	inMemory, err := memory.New(memory.Options{MaxKeys: 10_000})
	open("memory", 0, inMemory, err)
	onRedis, err := redis.Open(redis.Options{URL: testenv.Redis(t).Addr, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
	open("redis", patience, onRedis, err)
	cluster, err := redis.Open(redis.Options{Type: "cluster", URL: strings.Join(testenv.RedisCluster(t, 3, 0).Addrs(), ","), Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
	open("cluster", patience, cluster, err)
	cached, err := memcached.Open(memcached.Options{Servers: []string{testenv.Memcached(t).Addr, testenv.Memcached(t).Addr}, Timeout: patience, Watch: &breaker.Watch{Slow: patience}})
	open("memcached", patience, cached, err)
	return opened
}

// Every store decides random requests as a model does that keeps all counts, and callers at
// once never get more: nobody above max_borrow, and all together no more than the pool. Stores
// whose cells live apart are not asked where it matters when hits of a denied descriptor come back.
func TestPoolsOnEveryStore(t *testing.T) {
	random := testenv.Random(t)
	for name, store := range stores(t) {
		for _, charge := range []string{"always", "admitted"} {
			for _, strategy := range []string{"fixed_window", "sliding_log", "token_bucket"} {
				t.Run(name+"/"+charge+"/"+strategy, func(t *testing.T) {
					s := service.New(service.Config{Store: store, KeyPrefix: name + charge + strategy})
					rules := strings.NewReplacer("CHARGE", charge, "POOL", strategy).Replace(modelledRules)
					tree, _, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(rules)}}, yaml.Options{})
					if err != nil {
						t.Fatal(err)
					}
					s.SetTree(tree)
					model := pools{whole: charge == "admitted", cells: map[string]uint64{}}
					for i := range 60 {
						asked := randomCosts(random)
						late := pools{model.whole, true, maps.Clone(model.cells)}
						wants := model.decide(asked)
						if apart := name == "cluster" || name == "memcached"; apart {
							before := maps.Clone(late.cells)
							if !slices.Equal(late.decide(asked), wants) || !maps.Equal(late.cells, model.cells) {
								model.cells = before
								continue
							}
						}
						o := decide(t, s, asked)
						for j, want := range wants {
							if got := !o.Statuses[j].Denied; got != want {
								t.Fatalf("request %d, %v: descriptor %d is allowed: %v, want %v; %v", i, asked, j, got, want, model.cells)
							}
						}
						o.Release()
					}
				})
			}
		}
		t.Run(name+"/at once", func(t *testing.T) { atOnce(t, store, name) })
	}
}

func randomCosts(random *rand.Rand) (asked []costs) {
	for range 1 + random.IntN(3) {
		asked = append(asked, costs{
			testenv.OneOf(random, "user", "user", "job", "plain"), testenv.OneOf(random, "a", "b", "c"), 1 + uint64(random.IntN(4)),
		})
	}
	return asked
}

func decide(t *testing.T, s *service.Service, asked []costs) *service.Outcome {
	t.Helper()
	r := &service.Request{Domain: "d"}
	for _, c := range asked {
		r.Descriptors = append(r.Descriptors, service.Descriptor{Entries: []descriptors.Entry{{Key: c.key, Value: c.value}}, Hits: &c.hits})
	}
	o, err := s.Decide(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// atOnce has callers ask at once.
func atOnce(t *testing.T, store backends.Store, name string) {
	s := service.New(service.Config{Store: store, KeyPrefix: name + "at once"})
	tree, _, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(strings.NewReplacer("CHARGE", "always", "POOL", "fixed_window").Replace(modelledRules))}}, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.SetTree(tree)
	var passed [6]atomic.Int64
	var callers sync.WaitGroup
	for caller := range 24 {
		callers.Go(func() {
			for range 12 {
				o := decide(t, s, []costs{{"user", fmt.Sprint(caller % 6), 1}})
				if !o.Over {
					passed[caller%6].Add(1)
				}
				o.Release()
			}
		})
	}
	callers.Wait()
	borrowed := int64(0)
	for user := range passed {
		n := passed[user].Load()
		if n < 5 || n > 15 {
			t.Errorf("%d hits of user %d passed, want 5 to 15", n, user)
		}
		borrowed += n - 5
	}
	if borrowed > 40 {
		t.Errorf("%d hits are borrowed from a pool of 40", borrowed)
	}
	for range 60 { // a hit that was refused while others were given back can be borrowed now
		for user := range passed {
			if o := decide(t, s, []costs{{"user", fmt.Sprint(user), 1}}); !o.Over {
				borrowed++
			}
		}
	}
	if borrowed != 40 {
		t.Errorf("%d hits are borrowed from a pool of 40", borrowed)
	}
}

// A pool is looked at, reset and granted by its name; a limit that borrows shows its pool and
// what the key has borrowed, and a reset of the key empties both of its counters.
func TestInspectPools(t *testing.T) {
	r := start(t, lending("always"), func(c *config) { c.Values = service.NewValueHash([]byte("secret")) })
	r.hit(withHits(5, desc("user", "a")))
	r.hit(withHits(3, desc("user", "a")))
	spare := func(pool string) *operate.Question {
		return &operate.Question{Request: service.Request{Domain: "d"}, Pool: pool}
	}
	change := func(do operate.Action) operate.Change {
		_, changes, err := r.Change(t.Context(), spare("spare"), do)
		if err != nil || len(changes) != 1 {
			t.Fatal(changes, err)
		}
		return changes[0]
	}
	look := func() explain.Limit {
		in, err := r.Inspect(t.Context(), spare("spare"), operate.Explain)
		if err != nil || in.Descriptors[0].Rule != "d.pool_spare" {
			t.Fatal(in, err)
		}
		return only(t, in.Descriptors)
	}
	if pool := look(); pool.Count != 3 || pool.Remaining != 7 || !strings.HasPrefix(pool.Key, "d|pool=spare|1h|") {
		t.Errorf("%+v", pool)
	}
	limit := func() explain.Limit { return only(t, r.inspect(operate.Look, request(desc("user", "a")))) }
	if l := limit(); l.Remaining != 0 || *l.Next != 0 || l.Pool.Count != 3 || l.Borrowed.Count != 3 || l.Borrowed.Remaining != 1 {
		t.Errorf("%+v, pool %+v, borrowed %+v", l.Cell, l.Pool.Cell, l.Borrowed.Cell)
	}
	if granted := change(operate.Grant(operate.Granting{Hits: 5})); granted.After.Remaining != 12 {
		t.Errorf("%+v", granted)
	}
	r.want(withHits(10, desc("job", "a")), ok, 0) // all that one key may have borrowed
	r.hit(withHits(2, desc("job", "b")))
	r.want(withHits(2, desc("job", "b")), ok, 0)
	if l := limit(); time.Duration(*l.Next) != 50*time.Second { // the own limit's
		t.Errorf("next in %v", *l.Next)
	}
	if own := r.change(operate.Grant(operate.Granting{Hits: 1}), request(desc("user", "a"))); len(own) != 1 || own[0].After.Remaining != 1 {
		t.Errorf("%+v", own)
	}
	if reset := change(operate.Reset); reset.After.Remaining != 10 {
		t.Errorf("%+v", reset)
	}
	r.hit(desc("job", "b"))
	if own := r.change(operate.Reset, request(desc("user", "a"))); len(own) != 2 || own[0].After.Remaining != 5 || own[1].After.Remaining != 4 {
		t.Errorf("%+v", own)
	}
	if pool := look(); pool.Count != 1 {
		t.Errorf("the pool's count is %d, want that of the job", pool.Count)
	}
	for pool, want := range map[string]string{"spre": `the domain d has no pool "spre"; did you mean "spare"?`} {
		if _, err := r.Inspect(t.Context(), spare(pool), operate.Look); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := r.Inspect(t.Context(), &operate.Question{Request: service.Request{Domain: "e"}, Pool: "spare"}, operate.Look); err == nil || err.Error() != "the domain e has no pools" {
		t.Error(err)
	}
	if _, err := r.Inspect(t.Context(), &operate.Question{Pool: "spare"}, operate.Look); err == nil || !strings.Contains(err.Error(), "domain must not be empty") {
		t.Error(err)
	}
}

// A threshold is of the limit's own hits, and what was charged in any case is not charged again
// when the pool is asked.
func TestBorrowingBesideOverdraftsAndThresholds(t *testing.T) {
	for _, charge := range []string{"always", "admitted"} {
		r := start(t, `domain: d
charge: `+charge+`
pools: {spare: {unit: hour, requests_per_unit: 10}}
descriptors:
- key: user
  rate_limits:
  - {unit: minute, requests_per_unit: 2, borrow_from: spare, thresholds: [{at: 50%, response_headers: {half: "1"}}, {at: 99%, response_headers: {full: "1"}}]}
  - {unit: hour, requests_per_unit: 9, overdraft: true}
`)
		for i, want := range []string{"half", "full", "full", "full"} {
			resp := r.call(request(desc("user", "a")))
			if h := resp.ResponseHeadersToAdd; resp.OverallCode != ok || len(h) != 1 || h[0].Key != want {
				t.Errorf("request %d: %v", i, resp)
			}
		}
		if used := r.used(desc("user", "a")); used[0] != 2 || used[1] != 4 {
			t.Errorf("counts %d", used)
		}
		if p := r.inspect(operate.Look, request(desc("user", "a")))[0].Limits[0].Pool.Cell; p.Count != 2 {
			t.Errorf("pool %+v", p)
		}
	}
}

// Rules without pools cost what they did; what a pool costs is paid after a denial.
func TestNoPoolNoAllocation(t *testing.T) {
	r := start(t, lending("always"))
	ask := &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: "a"}}, Refund: true}}}
	plain := &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "plain", Value: "a"}}, Refund: true}}}
	per := func(request *service.Request) float64 {
		return testing.AllocsPerRun(1000, func() {
			o, err := r.service.Decide(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			o.Release()
		})
	}
	if borrows, none := per(ask), per(plain); borrows > none {
		t.Errorf("%v allocations with a pool that is not asked, %v without", borrows, none)
	}
}

// By the policy local this process lends its share of the pool while the store is away.
func TestLocalBorrowing(t *testing.T) {
	rules := strings.ReplaceAll(lending("always"), "max_borrow: 40%}", "max_borrow: 40%, on_error: local}")
	var m *metrics.Metrics
	r := start(t, rules, storeAway, local(t), replying(envoy.Reply{Metadata: true}), measure(t, &m))
	passed := 0
	for range 20 {
		resp, err := r.try(request(desc("user", "a")))
		if err != nil {
			t.Fatal(err)
		}
		if resp.OverallCode == ok {
			passed++
		}
		if m := resp.DynamicMetadata.AsMap(); m["policy"] != "local" || (m["borrowed"] == true) != (resp.OverallCode == ok && passed > 5) {
			t.Errorf("%d passed: metadata %v", passed, m)
		}
	}
	if passed != 9 {
		t.Errorf("%d passed, want 5 and 4 of the pool", passed)
	}
	for _, series := range counted(t, m, "rls_decisions_total{") { // the pool has no policy of its own
		if !strings.Contains(series, `policy="local"`) {
			t.Error(series)
		}
	}
}
