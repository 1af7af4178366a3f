package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/memcached"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/stack"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

const (
	patience = 20 * time.Second // the machine may be busy
	fits     = 100              // hits of each limit in everyKind
	leaseTTL = 10 * time.Second
)

// kinds are the rules of everyKind, by the kind of their cells. No window ends and no
// bucket refills during a test.
var kinds = map[string]string{
	"fixed": "", "first": ", window: from_first_hit", "calendar": ", window: calendar", "sliding": ", strategy: sliding_window",
	"log": ", strategy: sliding_log", "bucket": ", strategy: token_bucket",
	"parts": ", strategy: sliding_window, precision: 12", "slots": ", strategy: concurrency",
}

// leased reports whether the limit of a key of everyKind is leased.
func leased(key string) bool { return key != "slots" && !strings.HasSuffix(key, "-two") }

// everyKind has two rules for each kind: with one limit, which is leased if it can be, and
// with two.
func everyKind() (rules string, keys []string) {
	rules = "domain: d\ndescriptors:\n"
	for kind, terms := range kinds {
		limit := fmt.Sprintf("requests_per_unit: %d, on_error: local%s", fits, terms)
		lease := ""
		if leased(kind) {
			lease = fmt.Sprintf(", lease: {share: 10%%, ttl: %v}", leaseTTL)
		}
		rules += fmt.Sprintf("- {key: %s, rate_limit: {unit: year, %s%s}}\n", kind, limit, lease)
		rules += fmt.Sprintf("- {key: %s-two, rate_limits: [{unit: year, %s}, {unit: month, %s}]}\n", kind, limit, limit)
		keys = append(keys, kind, kind+"-two")
	}
	return rules, keys
}

// distant is a store on the clock of a test, which the test takes away.
type distant struct {
	backends.Store
	clock *atomic.Int64
	gone  atomic.Bool
	// frozen leaves only charges and refunds undecided: background work has no effect.
	frozen atomic.Bool
}

func (s *distant) Unwrap() backends.Store { return s.Store }

func (s *distant) Now() int64 { return s.clock.Add(1) } // no two moments are the same

func (s *distant) Apply(ctx context.Context, b *backends.Batch) error {
	var rest backends.Part
	for i := range b.Ops {
		b.Replies[i] = backends.Reply{}
		if op := &b.Ops[i]; s.gone.Load() || s.frozen.Load() && !op.Verb.Operates() && !op.ReadOnly() {
			b.Replies[i].Err = backends.ErrUnavailable
		} else {
			rest.Add(b, i)
		}
	}
	if len(rest.Ops) == len(b.Ops) {
		return s.Store.Apply(ctx, b)
	}
	b.Refused = false
	_ = s.Store.Apply(ctx, &rest.Batch)
	rest.Answer(b)
	return b.Err()
}

// process is a service with all its memories on a store, and its admin API.
type process struct {
	*rig
	store *distant
	near  *near.Store
	url   string // of the admin API
}

func startProcess(t *testing.T, open func() (backends.Store, error), clock *atomic.Int64, prefix string) *process {
	store, err := open()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{store: &distant{Store: store, clock: clock}}
	rules, _ := everyKind()
	p.rig = start(t, rules, func(c *config) {
		if c.Store, err = stack.Build(stack.Options{
			Main: stack.Tier{Store: p.store, Timeout: patience}, LocalCache: 1 << 20, Near: func(s *near.Store) { p.near = s },
		}); err != nil {
			t.Fatal(err)
		}
		c.Local, c.KeyPrefix = true, prefix
		t.Cleanup(func() { _ = c.Store.Close() })
	})
	p.clock = clock
	log := slog.New(slog.DiscardHandler)
	api := httptest.NewServer(admin.New(admin.Options{Limits: p.Operator, Log: log, Audit: log, Ending: t.Context()}).SocketHandler("test"))
	t.Cleanup(api.Close)
	p.url = api.URL
	return p
}

// settled waits until the store has counted that many hits in the cells of key, or less
// by so many. Some time passes between two looks.
func (p *process) settled(value, key string, counted, less int64, pass time.Duration) {
	p.t.Helper()
	var limits []explain.Limit
	if !testenv.Poll(patience, func() bool {
		p.clock.Add(pass.Microseconds())
		limits = p.inspect(operate.Look, request(desc(key, value)))[0].Limits
		return !slices.ContainsFunc(limits, func(l explain.Limit) bool {
			return l.Error != "" || l.Count-l.Granted > counted || l.Count-l.Granted < counted-less
		})
	}) {
		p.t.Errorf("%s, %s: the store has counted %+v, %v, want %d", value, key, limits[0].Cell, limits[0].Error, counted)
	}
}

// verbs are what callers and operators do with the cells of a descriptor. then is the
// hits that the cells have afterwards.
var verbs = []struct {
	name, way string
	then      func(used int64) int64
}{
	{"charge", "", func(used int64) int64 {
		if used+5 > fits {
			return used
		}
		return used + 5
	}},
	{"refund", "", func(used int64) int64 { return used - 5 }},
	{"check", "", unchanged},
	{"Get", "/v1/get", unchanged},
	{"Reset", "/v1/reset", emptied},
	{"ResetMatching", "/v1/reset", emptied}, {"ResetMatching", "/v1/reset as a stream", emptied},
	{"Grant", "/v1/grant", granted},
}

func unchanged(used int64) int64 { return used }
func emptied(int64) int64        { return 0 }
func granted(used int64) int64   { return min(used, fits) - 60 }

// do does a verb by a way.
func (p *process) do(verb, way, key, value string) error {
	var body any
	about := operate.Question{Request: service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: key, Value: value}}}}}}
	switch verb {
	case "charge":
		p.hit(withHits(5, desc(key, value)))
		return nil
	case "refund":
		p.hit(refund(5, desc(key, value)))
		return nil
	case "check":
		p.hit(withHits(0, desc(key, value)))
		return nil
	case "Get":
		body = about
	case "Reset", "Forget":
		body = about
	case "ResetMatching", "ForgetMatching":
		body = admin.ResetRequest{Question: operate.Question{Request: service.Request{Domain: "d"}}, Rule: "d." + key, AllMatching: true}
	case "Grant":
		body = admin.GrantRequest{Question: about, Grant: 60}
	}
	return p.send(way, body)
}

// send asks the admin API of p by a way: a path, perhaps as a stream.
func (p *process) send(way string, body any) error {
	path, stream := strings.CutSuffix(way, " as a stream")
	ask := client.New(client.Options{Network: "tcp", Address: strings.TrimPrefix(p.url, "http://")})
	defer ask.Close()
	if stream {
		return client.Stream(p.t.Context(), ask, path, body, nil, func(*admin.Progress) error { return nil })
	}
	return ask.Ask(p.t.Context(), path, body, new(any))
}

// memories are what a process remembers of a cell: begin makes it remember, and returns
// how many hits are in the cell.
var memories = []struct {
	name  string
	begin func(p, other *process, keys []string) (used map[string]int64)
	held  int64 // the hits of the cell that a lease may hold
}{
	{"full", fill("full"), 0},
	{"known", know("known"), 0},
	{"owed", func(p, other *process, keys []string) map[string]int64 {
		used := know("owed")(p, other, keys)
		p.store.gone.Store(true)
		for _, key := range keys {
			p.want(withHits(20, desc(key, "owed")), ok, fits-50)
			used[key] += 20
		}
		p.store.frozen.Store(true)
		p.store.gone.Store(false)
		return used
	}, 0},
	{"held", hold("held"), fits / 10},
	{"given back", hold("given back"), fits / 10},
	{"window before", func(p, _ *process, keys []string) map[string]int64 {
		const window = int64(365 * 24 * time.Hour / time.Microsecond)
		p.want(withHits(fits, desc(keys[0], "window before")), ok, 0)
		p.clock.Store((p.clock.Load()/window+1)*window + 1)
		p.want(withHits(0, desc(keys[0], "window before")), ok, 0)
		return map[string]int64{keys[0]: fits}
	}, 0},
}

// fill uses the cells up, and has both processes deny from memory.
func fill(value string) func(p, other *process, keys []string) map[string]int64 {
	return func(p, other *process, keys []string) map[string]int64 {
		used := map[string]int64{}
		before := p.near.Cache().Hits
		for _, key := range keys {
			p.want(withHits(fits, desc(key, value)), ok, 0)
			used[key] = fits
			other.hit(withHits(0, desc(key, value))) // knows, so it charges no hit that does not fit
			for range 2 {
				p.want(desc(key, value), over, 0)
				other.want(desc(key, value), over, 0)
			}
			if key == "fixed-two" || key == "first-two" || key == "calendar-two" {
				used[key] += 2 // the store has counted the first denial of each process
			}
		}
		if p.near.Cache().Hits == before {
			p.t.Error("memory has denied nothing")
		}
		return used
	}
}

// know has the process hear of the cells.
func know(value string) func(p, _ *process, keys []string) map[string]int64 {
	return func(p, _ *process, keys []string) map[string]int64 {
		used := map[string]int64{}
		for _, key := range keys {
			p.want(withHits(30, desc(key, value)), ok, fits-30)
			used[key] = 30
		}
		return used
	}
}

// hold has the process hold hits of the cells that may be leased.
func hold(value string) func(p, _ *process, keys []string) map[string]int64 {
	return func(p, _ *process, keys []string) map[string]int64 {
		used := map[string]int64{}
		for _, key := range keys {
			before := p.near.Leases().Leased
			hit := func() bool {
				p.hit(desc(key, value))
				used[key]++
				return used[key] >= 12 && (!leased(key) || p.near.Leases().Leased > before)
			}
			testenv.Eventually(p.t, patience, hit, key+" is leased")
		}
		return used
	}
}

// TestEveryVerbReachesEveryMemory: whatever a process remembers of a cell, that it is
// full, hits that it holds or owes, or how the store last reported it, follows what is
// done with the cell, by whatever way. It decides alone as the store would, and the
// store has then counted the hits that were used.
func TestEveryVerbReachesEveryMemory(t *testing.T) {
	type opener func() (backends.Store, error)
	onRedis := func(o redis.Options) opener {
		o.Timeout = patience
		return func() (backends.Store, error) {
			o.Watch = &breaker.Watch{Slow: patience}
			return redis.Open(o)
		}
	}
	for name, server := range map[string]func(*testing.T) opener{
		"memory": func(*testing.T) opener { return nil },
		"redis":  func(t *testing.T) opener { return onRedis(redis.Options{URL: testenv.Redis(t).Addr}) },
		"cluster": func(t *testing.T) opener {
			return onRedis(redis.Options{Type: "cluster", URL: strings.Join(testenv.RedisCluster(t, 3, 0).Addrs(), ",")})
		},
		"memcached": func(t *testing.T) opener {
			o := memcached.Options{Servers: []string{testenv.Memcached(t).Addr}, Timeout: patience}
			return func() (backends.Store, error) {
				o.Watch = &breaker.Watch{Slow: patience}
				return memcached.Open(o)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := server(t)
			for _, v := range verbs {
				t.Run(v.name+" "+v.way, func(t *testing.T) {
					t.Parallel()
					clock := new(atomic.Int64)
					clock.Store(time.Now().UnixMicro())
					store, err := memory.New(memory.Options{MaxKeys: 10_000, Now: clock.Load})
					open := open
					if open == nil { // both processes have the same
						open = func() (backends.Store, error) { return store, err }
					}
					p, other := startProcess(t, open, clock, t.Name()), startProcess(t, open, clock, t.Name())
					if name == "memcached" && v.name == "ResetMatching" {
						if err := p.do(v.name, v.way, "fixed", ""); err == nil || !strings.Contains(err.Error(), "cannot scan") {
							t.Error(err)
						}
						return
					}
					_, keys := everyKind()
					reaches(p, other, v.name, v.way, keys, v.then)
				})
			}
		})
	}
}

// reaches checks that a verb reaches all memories of p, and of other in time.
func reaches(p, other *process, verb, way string, keys []string, then func(used int64) int64) {
	t := p.t
	for _, m := range memories {
		if m.name == "window before" {
			if then(fits) != 0 {
				continue
			}
			keys = []string{"sliding"}
		}
		used := m.begin(p, other, keys)
		for _, key := range keys {
			if err := p.do(verb, way, key, m.name); err != nil {
				t.Fatal(err)
			}
			used[key] = then(used[key])
			if m.held > 0 {
				got, want := int64(p.hit(withHits(0, desc(key, m.name))).LimitRemaining), fits-used[key]
				if got < want-m.held || got > want+m.held {
					t.Errorf("%s, %s: %d remain, want %d", m.name, key, got, want)
				}
			}
		}
		if m.name == "full" {
			for _, asked := range []*process{p, other} {
				for _, key := range keys {
					if used[key] < fits {
						asked.want(desc(key, m.name), ok, uint32(fits-used[key]-1))
						asked.hit(refund(1, desc(key, m.name)))
					}
				}
				p.clock.Add(time.Second.Microseconds()) // other believes no longer
			}
		}
		if m.name == "given back" {
			for _, key := range keys {
				for range 3 { // hits that a reset took along must not pass
					p.hit(desc(key, m.name))
					used[key]++
				}
			}
			pass := leaseTTL
			if verb == "Grant" { // has ended the leases
				pass = 0
			}
			for _, key := range keys {
				other.settled(m.name, key, used[key], 0, pass)
				p.settled(m.name, key, used[key], 0, pass)
			}
		}
		p.store.gone.Store(true)
		for _, key := range keys {
			left := max(0, fits-used[key])
			passed := int64(0)
			for passed < m.held && p.hit(desc(key, m.name)).Code == ok { // uses up the lease
				passed++
			}
			if rest := left - passed - m.held; rest > 0 && p.hit(withHits(uint64(rest), desc(key, m.name))).Code == ok {
				passed += rest
			}
			for passed <= left+m.held && p.hit(desc(key, m.name)).Code == ok {
				passed++
			}
			if passed < left-m.held || passed > left+m.held {
				t.Errorf("%s, %s: %d hits pass alone, want %d", m.name, key, passed, left)
			}
		}
		p.store.frozen.Store(false)
		p.store.gone.Store(false)
		for _, key := range keys {
			other.settled(m.name, key, max(fits, used[key]), m.held, leaseTTL)
		}
	}
}

// TestForgetReachesEveryMemory: what a process remembers of a cell ends when it is told that
// another process has reset the cell or granted hits to it. It then decides as the store
// does, holds no hits of the cell and owes it none.
func TestForgetReachesEveryMemory(t *testing.T) {
	long := "long " + strings.Repeat("v", 60)                                   // memory has a hash of its key
	remembered := append(slices.Clone(memories[:len(memories)-1]), memories[0]) // but the window before
	remembered[len(remembered)-1].name, remembered[len(remembered)-1].begin = long, fill(long)
	for verb, then := range map[string]func(int64) int64{"Reset": emptied, "ResetMatching": emptied, "Grant": granted} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			clock := new(atomic.Int64)
			clock.Store(time.Now().UnixMicro())
			store, err := memory.New(memory.Options{MaxKeys: 10_000, Now: clock.Load})
			open := func() (backends.Store, error) { return store, err }
			p, other := startProcess(t, open, clock, t.Name()), startProcess(t, open, clock, t.Name())
			_, keys := everyKind()
			for _, m := range remembered {
				used := m.begin(p, other, keys)
				for _, key := range keys {
					if m.name == "owed" { // the store has not heard of them
						used[key] -= 20
					}
					way, forget := "/v1/reset", "Forget"
					switch verb {
					case "Grant":
						way = "/v1/grant"
					case "ResetMatching":
						forget = "ForgetMatching"
					}
					if err := errors.Join(other.do(verb, way, key, m.name), p.do(forget, "/v1/forget", key, m.name)); err != nil {
						t.Fatal(err)
					}
				}
				if held := p.near.Leases().Held; held != 0 {
					t.Errorf("%s: %d hits are held", m.name, held)
				}
				p.store.frozen.Store(false)
				for _, key := range keys {
					left := fits - then(used[key])
					if m.held > 0 && verb == "Grant" { // held hits stay charged
						left = int64(p.hit(withHits(0, desc(key, m.name))).LimitRemaining)
						if want := fits - then(used[key]); left > want || left < want-m.held {
							t.Errorf("%s, %s: %d remain, want %d", m.name, key, left, want)
						}
					}
					if got := p.hit(withHits(uint64(left), desc(key, m.name))); got.Code != ok || got.LimitRemaining != 0 {
						t.Errorf("%s, %s: got %v, want that %d hits pass", m.name, key, got, left)
					}
					p.settled(m.name, key, fits, 0, leaseTTL)
				}
			}
		})
	}
}

// TestResetForgetsReservations: after a reset by any way no reservation gives back hits of
// later charges. It is new, and its hits are charged.
func TestResetForgetsReservations(t *testing.T) {
	for _, v := range verbs {
		if v.name != "Reset" && v.name != "ResetMatching" {
			continue
		}
		clock := new(atomic.Int64)
		clock.Store(time.Now().UnixMicro())
		store, err := memory.New(memory.Options{MaxKeys: 10_000, Now: clock.Load})
		p := startProcess(t, func() (backends.Store, error) { return store, err }, clock, t.Name())
		p.load("domain: d\ndescriptors: [{key: user, descriptors: [{key: id, rate_limit: {unit: year, requests_per_unit: 100, reserve: true}}]}]")
		p.want(withHits(40, desc("user", "ann", "id", "a")), ok, 60)
		about := operate.Question{Request: service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: "ann"}, {Key: "id", Value: "any"}}}}}}
		body := admin.ResetRequest{Question: about}
		if v.name == "ResetMatching" {
			body = admin.ResetRequest{Question: operate.Question{Request: service.Request{Domain: "d"}}, Rule: "d.user.id", AllMatching: true}
		}
		if err := p.send(v.way, body); err != nil {
			t.Fatal(err)
		}
		p.want(withHits(70, desc("user", "ann", "id", "b")), ok, 30)
		p.want(withHits(10, desc("user", "ann", "id", "a")), ok, 20)
	}
}
