package top_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/top"
)

var (
	user      = &descriptors.Rule{Path: "shop.user"}
	perMinute = &descriptors.Limit{Limit: &algorithms.Limit{Spec: algorithms.Spec{Requests: 10, Window: time.Minute}}, Unit: descriptors.Minute, Multiplier: 1}
)

// asked is an observation of one descriptor with the limit of a rule.
func asked(value string, hits uint64, allowed bool) *service.Observation {
	return &service.Observation{Domain: "shop", Verdicts: []service.Verdict{{
		Rule: user, Limit: perMinute, Key: "shop|user=" + value + "|1m|1", Entries: []descriptors.Entry{{Key: "user", Value: value}},
		Hits: hits, Decided: true, Is: algorithms.Decision{Allowed: allowed, Remaining: 7},
	}}}
}

// lines are the rows of a table, one in a line.
func lines(table top.Table) string {
	var b strings.Builder
	for _, row := range table.Rows {
		fmt.Fprintf(&b, "%s %s %d %d %d ±%d\n", row.Rule, row.Entries[0].Value, row.Hits, row.Denied, row.Cost, row.Error)
	}
	return b.String()
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%swant\n%s", what, got, want)
	}
}

func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
		for range 5 {
			s.Observe(asked("often", 1, true))
		}
		for range 2 {
			s.Observe(asked("denied", 3, false))
		}
		s.Observe(asked("dear", 100, true))
		<-time.After(10 * time.Second)
		expect(t, "denied", lines(s.Table(top.Query{By: "denied", N: 10})), "shop.user denied 2 2 6 ±0\n")
		expect(t, "hits", lines(s.Table(top.Query{By: "hits", N: 2})), "shop.user often 5 0 5 ±0\nshop.user denied 2 2 6 ±0\n")
		cost := s.Table(top.Query{By: "cost", Rule: "shop.user", N: 1})
		expect(t, "cost", lines(cost), "shop.user dear 1 0 100 ±0\n")
		if cost.Total != (top.Total{Hits: 8, Denied: 2, Cost: 111}) || cost.Rows[0].Rate != 10 || cost.Window != "60s" {
			t.Errorf("got %+v", cost)
		}
		expect(t, "another rule", lines(s.Table(top.Query{By: "hits", Rule: "shop.other", N: 10})), "")
	})
}

// Keys are found by a part of a key or value, also those that are low in every order.
func TestFind(t *testing.T) {
	s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	s.Observe(asked("ann", 1, true))
	s.Observe(asked("ann", 1, false))
	s.Observe(asked("joanna", 1, true))
	s.Observe(asked("bob", 1, true))
	s.Observe(asked(strings.Repeat("x", 1000), 1, true))
	for text, want := range map[string]string{
		"ann":  "shop shop.user user=ann 1 false|shop shop.user user=joanna 0 false",
		"anna": "shop shop.user user=joanna 0 false",
		"Ann":  "",
		"xxx":  "shop shop.user user=" + strings.Repeat("x", 380) + "… 0 true",
	} {
		var lines []string
		for _, m := range s.Find(text, nil) {
			lines = append(lines, fmt.Sprintf("%s %s %s %d %t", m.Domain, m.Rule, descriptors.Pairs(m.Entries), m.Denied, m.Cut))
		}
		slices.Sort(lines)
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	if all := s.Find("user", nil); len(all) != 4 {
		t.Errorf("by the key: got %v", all)
	}
}

// A request counts once for each descriptor, however many limits the descriptor has.
func TestSeveralLimits(t *testing.T) {
	s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	o := asked("a", 2, true)
	second := o.Verdicts[0]
	second.Is.Allowed = false
	other := asked("b", 1, true).Verdicts[0]
	o.Verdicts = append(o.Verdicts, second, other)
	s.Observe(o)
	expect(t, "hits", lines(s.Table(top.Query{By: "cost", N: 10})), "shop.user a 1 1 2 ±0\nshop.user b 1 0 1 ±0\n")
}

// Descriptors whose values share a counter are one row, and a descriptor with the text of the
// pattern as its value is another one.
func TestSharedCounters(t *testing.T) {
	s := top.New(top.Options{Keys: 10, StoredKey: strings.ToUpper})
	shared := &descriptors.Rule{Path: "shop.path", Shared: []descriptors.Naming{{Pattern: descriptors.Entry{Value: "/a/*"}}}}
	for _, path := range []string{"/a/1", "/a/2", "/a/*"} {
		o := asked(path, 1, false)
		o.Verdicts[0].Rule = shared
		s.Observe(o)
	}
	o := asked("/a/*", 1, false)
	o.Verdicts[0].Rule, o.Verdicts[0].Override = shared, true
	s.Observe(o)
	table := s.Table(top.Query{By: "denied", N: 10})
	expect(t, "rows", lines(table), "shop.path /a/* 3 3 3 ±0\nshop.path /a/* 1 1 1 ±0\n")
	if row := table.Rows[0]; row.Key != "SHOP|USER=/A/*|1M|1" {
		t.Errorf("got %+v", row)
	}
}

// A match whose values share a counter, and a network whose addresses do, is one row.
func TestSharedMatchesAndNetworks(t *testing.T) {
	s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	matched := &descriptors.Rule{Path: "shop.path", Shared: []descriptors.Naming{{Match: "values:a%2B+1"}}}
	masked := &descriptors.Rule{Path: "shop.net", Shared: []descriptors.Naming{{Mask: descriptors.Mask{IPv4: 24, IPv6: 64}}}}
	for value, rule := range map[string]*descriptors.Rule{"a": matched, "b": matched, "192.0.2.1": masked, "::ffff:192.0.2.2": masked, "192.0.3.1": masked, "host": masked} {
		o := asked(value, 1, false)
		o.Verdicts[0].Rule = rule
		s.Observe(o)
		s.Observe(o)
	}
	rows := slices.Sorted(strings.Lines(lines(s.Table(top.Query{By: "denied", N: 10}))))
	expect(t, "rows", strings.Join(rows, ""), "shop.net 192.0.2.0/24 4 4 4 ±0\nshop.net 192.0.3.0/24 2 2 2 ±0\nshop.net host 2 2 2 ±0\nshop.path ~values:a++1 4 4 4 ±0\n")
}

// A row shows the limit that decided the last request: the one that denied with the longest
// wait, else the one with the least remaining.
func TestTheLimitThatDecided(t *testing.T) {
	s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	perDay := &descriptors.Limit{Limit: &algorithms.Limit{Spec: algorithms.Spec{Requests: 10, Window: 24 * time.Hour}}, Name: "per-day"}
	o := asked("a", 1, true)
	o.Verdicts = append(o.Verdicts, o.Verdicts[0], o.Verdicts[0])
	o.Verdicts[1].Limit, o.Verdicts[1].Key = perDay, "of the day"
	first, day := &o.Verdicts[0], &o.Verdicts[1]
	shows := func(limit, key string, remaining int64) {
		t.Helper()
		s.Observe(o)
		if row := s.Table(top.Query{By: "hits", N: 1}).Rows[0]; row.Limit != limit || row.Key != key || (row.Remaining == nil) != (remaining < 0) || row.Remaining != nil && *row.Remaining != remaining {
			t.Errorf("got %+v", row)
		}
	}
	day.Is.Remaining = 2
	shows("per-day", "of the day", 2)
	first.Is = algorithms.Decision{RetryAfter: time.Second}
	shows("fixed_window 10 per minute", "shop|user=a|1m|1", 0)
	day.Is = algorithms.Decision{RetryAfter: time.Hour}
	shows("per-day", "of the day", 0)
	day.Shadow = true
	shows("fixed_window 10 per minute", "shop|user=a|1m|1", 0)
	first.Decided, day.Shadow, o.Verdicts[2].Shadow = false, false, true
	shows("per-day", "of the day", 0)
	day.Decided, o.Verdicts[2].Decided = false, false
	shows("fixed_window 10 per minute", "shop|user=a|1m|1", -1)
}

// Of a bounded number of descriptors the last override is remembered, also long after they
// have left the table: the newer ones.
func TestOverridesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
		limit := *perMinute
		limit.WrittenRequests, limit.Unit, limit.Multiplier = 7, descriptors.Hour, 2
		for i := range 1000 {
			o := asked(fmt.Sprint(i), 1, true)
			o.Verdicts[0].Limit, o.Verdicts[0].Override = &limit, true
			s.Observe(o)
			<-time.After(time.Second)
		}
		var kept []int
		for i := range 1000 {
			if o := s.Override("shop", []descriptors.Entry{{Key: "user", Value: fmt.Sprint(i)}}); o != nil {
				kept = append(kept, i)
				if *o != (explain.Override{Rate: service.Override{RequestsPerUnit: 7, Unit: descriptors.Hour, Multiplier: 2}, Seen: o.Seen}) {
					t.Errorf("got %+v", o)
				}
			}
		}
		if n := len(kept); n < 50 || n > 100 || kept[0] != 1000-n {
			t.Errorf("of 1000 the limits of %d are kept: %v", n, kept)
		}
	})
}

// Shadow mode denies nothing.
func TestShadow(t *testing.T) {
	s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
	o := asked("a", 1, false)
	o.Verdicts[0].Shadow = true
	s.Observe(o)
	expect(t, "denied", lines(s.Table(top.Query{By: "denied", N: 10})), "")
}

// All of the last minute counts. Hits that may be older are in the error.
func TestLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
		<-time.After(4 * time.Second)
		s.Observe(asked("a", 1, false))
		<-time.After(36 * time.Second)
		s.Observe(asked("a", 1, false))
		expect(t, "after 36 s", lines(s.Table(top.Query{By: "denied", N: 10})), "shop.user a 2 2 2 ±0\n")
		<-time.After(23 * time.Second)
		expect(t, "after 59 s", lines(s.Table(top.Query{By: "denied", N: 10})), "shop.user a 2 2 2 ±1\n")
		<-time.After(6 * time.Second)
		expect(t, "after 65 s", lines(s.Table(top.Query{By: "denied", N: 10})), "shop.user a 1 1 1 ±0\n")
		<-time.After(time.Hour)
		if got := s.Table(top.Query{By: "denied", N: 10}); len(got.Rows) > 0 || got.Total != (top.Total{}) {
			t.Errorf("after an hour: %+v", got)
		}
	})
}

// 2,000 requests a second are all counted, also when they come in heaps.
func TestFewRequestsAreNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
		for range 40 {
			for range 1000 {
				s.Observe(asked("a", 1, true))
			}
			<-time.After(500 * time.Millisecond)
		}
		expect(t, "20 s", lines(s.Table(top.Query{By: "hits", N: 1})), "shop.user a 40000 0 40000 ±0\n")
	})
}

// TestBounds: with far more keys than are kept, no count is too low, none is too high
// by more than its error, and the keys that are asked for most are found.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, truth := top.New(top.Options{Keys: 100, StoredKey: strings.Clone}), map[string]int64{}
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, 1<<20)
		for i := range 50_000 {
			key := fmt.Sprint(zipf.Uint64())
			truth[key]++
			s.Observe(asked(key, 1, true))
			if i%20 == 0 {
				<-time.After(20 * time.Millisecond) // 1,000 a second
			}
		}
		table := s.Table(top.Query{By: "hits", N: 100})
		if len(table.Rows) != 100 {
			t.Fatalf("%d rows", len(table.Rows))
		}
		for i, row := range table.Rows {
			n := truth[row.Entries[0].Value]
			if row.Hits < n || row.Hits-row.Error > n {
				t.Errorf("%s: got %d ± %d, asked %d times", row.Entries[0].Value, row.Hits, row.Error, n)
			}
			if i < 5 && row.Entries[0].Value != fmt.Sprint(i) {
				t.Errorf("row %d is %s", i, row.Entries[0].Value)
			}
			if row.Error > table.Error {
				t.Errorf("the table's error %d is less than %d", table.Error, row.Error)
			}
		}
	})
}

// TestSampling: a crowd is counted by a sample, within the error that is shown.
func TestSampling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 1
		s := top.New(top.Options{Keys: 100, StoredKey: strings.Clone, Random: rand.New(rand.NewPCG(seed, 0)).Uint32})
		const n = 400_000 // 40,000 a second
		for i := range n {
			s.Observe(asked([]string{"hot", "warm"}[min(1, i%4)], 1, i%4 > 0))
			if i%40 == 0 {
				<-time.After(time.Millisecond)
			}
		}
		table := s.Table(top.Query{By: "hits", N: 2})
		for i, want := range []int64{n / 4 * 3, n / 4} {
			row := table.Rows[i]
			if row.Error == 0 || row.Error > want/10 || row.Hits < want-row.Error || row.Hits > want+row.Error {
				t.Errorf("seed %d: %+v: want %d", seed, row, want)
			}
		}
	})
}

// TestErrorOfSample: of 1,000 tables with only the highest row of equal keys, at most one
// has a row that is too high by more than its error; here none of 100 has.
func TestErrorOfSample(t *testing.T) {
	const (
		keys = 100
		each = 1600 // requests for a key, every tenth of which costs 100
	)
	var all []*service.Observation
	for i := range 10 * keys {
		all = append(all, asked(fmt.Sprint(i%keys), []uint64{100, 1}[min(1, i/keys)], true))
	}
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			s := top.New(top.Options{Keys: keys, StoredKey: strings.Clone, Random: rand.New(rand.NewPCG(750+seed, 0)).Uint32})
			for i := range keys * each { // 40,000 a second
				s.Observe(all[i%len(all)])
				if i%400 == 0 {
					<-time.After(10 * time.Millisecond)
				}
			}
			if row := s.Table(top.Query{By: "hits", N: 1}).Rows[0]; row.Hits-row.Error > each {
				t.Errorf("seed %d: got %d ± %d hits, want %d", 750+seed, row.Hits, row.Error, each)
			}
			if row := s.Table(top.Query{By: "cost", N: 1}).Rows[0]; row.Cost-row.Error > each/10*(100+9) {
				t.Errorf("seed %d: got a cost of %d ± %d, want %d", 750+seed, row.Cost, row.Error, each/10*(100+9))
			}
		})
	}
}

// TestLongEntries: hostile descriptors take bounded memory, also if each order keeps other
// ones, and differ although only their first bytes are kept.
func TestLongEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const keys = 1000
		s := top.New(top.Options{Keys: keys, StoredKey: strings.Clone})
		for i := range 4 * keys {
			hits, allowed := uint64(100), true // they are kept by cost
			if i >= 2*keys {
				hits, allowed = 0, i >= 3*keys // then the denied ones, then the others, by hits
			}
			o := asked(fmt.Sprint(strings.Repeat("x", 8000), i), hits, allowed)
			o.Domain = strings.Repeat("d", 300)
			o.Verdicts[0].Key += strings.Repeat("k", 8000)
			for j := range 30 {
				o.Verdicts[0].Entries = append(o.Verdicts[0].Entries, descriptors.Entry{Key: fmt.Sprint("key", j), Value: strings.Repeat("ü", 300)})
			}
			o.Verdicts[0].Entries[0], o.Verdicts[0].Entries[30] = o.Verdicts[0].Entries[30], o.Verdicts[0].Entries[0]
			s.Observe(o)
			<-time.After(time.Millisecond)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > 3*keys*2048 {
			t.Errorf("3 × %d keys take %d bytes", keys, used)
		}
		for _, by := range []string{"cost", "denied", "hits"} {
			rows := s.Table(top.Query{By: by, N: keys}).Rows
			if len(rows) != keys || !strings.HasSuffix(rows[0].Entries[0].Value, "…") {
				t.Errorf("%s: %d rows, the first %+v", by, len(rows), rows[0])
			}
		}
	})
}

func BenchmarkObserve(b *testing.B) {
	s := top.New(top.Options{Keys: 1000, StoredKey: strings.Clone})
	var all []*service.Observation
	for i := range 100_000 {
		all = append(all, asked(fmt.Sprint(i), 1, i%2 == 0))
	}
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(all)); pb.Next(); i++ {
			s.Observe(all[i%len(all)])
		}
	})
}

// The first requests after a burst are sampled, too: a row that misses one says so.
func TestErrorAfterBurst(t *testing.T) {
	for _, pause := range []time.Duration{0, 15 * time.Second} {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				counted := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
				const burst = 2501 // the last one makes the sketch look at every second request
				for range burst {
					counted.Observe(asked("ann", 1, true))
				}
				<-time.After(pause)
				counted.Observe(asked("ann", 1, true))
				if row := counted.Table(top.Query{By: "hits", N: 1}).Rows[0]; row.Hits != burst+1 && row.Error == 0 {
					t.Errorf("%v after %d requests one more: got %d hits with error 0", pause, burst, row.Hits)
				}
			})
		}
	}
}
