package denials_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

var began = time.Date(2026, 11, 22, 3, 12, 7, 0, time.UTC)

func limit(name string, requests uint32, window time.Duration) *descriptors.Limit {
	l, err := algorithms.New(algorithms.Spec{Strategy: algorithms.FixedWindow, Requests: requests, Window: window})
	if err != nil {
		panic(err)
	}
	return &descriptors.Limit{Name: name, Limit: l, OnError: descriptors.PolicyDeny}
}

var (
	user     = &descriptors.Rule{Path: "shop.user"}
	tenAMin  = limit("", 10, time.Minute)
	oneADay  = limit("per-day", 100, 24*time.Hour)
	waits41s = algorithms.Decision{RetryAfter: 41 * time.Second}
)

// denied is an observation of a denied request some time after began.
func denied(value string, after time.Duration) *service.Observation {
	return &service.Observation{Domain: "shop", At: began.Add(after).UnixMicro(), Result: service.Limited, Verdicts: []service.Verdict{{
		Rule: user, Limit: tenAMin, Entries: []descriptors.Entry{{Key: "user", Value: value}}, Hits: 1, Decided: true, Counted: true, Is: waits41s,
	}}}
}

// lines are denials, one in a line.
func lines(all []denials.Denial) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, "%s %s %s %s %d %q %s %v %d %v %s %t %d\n", d.Time.Format(time.TimeOnly), d.Domain, d.Rule, descriptors.Pairs(d.Entries),
			d.Limit, d.Name, d.Strategy, time.Duration(d.Window), d.Cost, time.Duration(d.RetryAfter), d.Policy, d.Shadow, d.Sampled)
	}
	return b.String()
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%swant\n%s", what, got, want)
	}
}

// Each limit that denies has a row; one that allows, or was not decided, has none.
func TestRows(t *testing.T) {
	d := denials.New(denials.Options{Keep: 10})
	o := denied("ann", 0)
	day, other := o.Verdicts[0], denied("bob", 0).Verdicts[0]
	day.Limit, day.Hits, day.Counted = oneADay, 3, false
	allows := day
	allows.Is = algorithms.Decision{Allowed: true}
	undecided := day
	undecided.Decided = false
	other.Shadow, other.Rule, other.Override = true, nil, true
	o.Verdicts = append(o.Verdicts, allows, undecided, day, other)
	d.Observe(o)
	list := d.List(denials.Query{}, 10)
	expect(t, "all", lines(list.Denials), `03:12:07 shop shop.override user=bob 10 "" fixed_window 1m0s 1 41s counted true 0
03:12:07 shop shop.user user=ann 100 "per-day" fixed_window 24h0m0s 3 41s deny false 0
03:12:07 shop shop.user user=ann 10 "" fixed_window 1m0s 1 41s counted false 0
`)
	if list.Kept != 3 || list.Sampled != 1 || !list.From.Equal(began) {
		t.Errorf("got %+v", list)
	}

	o = denied("cyd", 0)
	o.Result = service.Passed // the process is in shadow mode, or another descriptor in quota mode passes
	d.Observe(o)
	for _, result := range []service.Result{service.NoStore, service.CallGone} {
		o = denied("dan", 0)
		o.Result = result
		d.Observe(o)
	}
	if all := d.List(denials.Query{}, 1); all.Kept != 4 || !all.Denials[0].Shadow || all.Denials[0].Entries[0].Value != "cyd" {
		t.Errorf("got %+v", all)
	}
}

func TestQueries(t *testing.T) {
	d := denials.New(denials.Options{Keep: 3})
	if l := d.List(denials.Query{}, 10); l.From != nil || l.Kept != 0 || len(l.Denials) != 0 || l.Sampled != 1 {
		t.Errorf("without denials: got %+v", l)
	}
	for i, name := range []string{"zoe", "ann", "joanna", "bob"} {
		o := denied(name, time.Duration(i)*time.Hour)
		if name == "bob" {
			o.Verdicts[0].Rule = &descriptors.Rule{Path: "shop.other"}
			o.Verdicts[0].Entries = append(o.Verdicts[0].Entries, descriptors.Entry{Key: "plan"}, descriptors.Entry{Key: "ip", Value: "10.1.2.3"})
		}
		d.Observe(o)
	}
	for want, q := range map[string]denials.Query{
		"bob joanna ann": {},
		"joanna ann":     {Rule: "shop.user"},
		"joanna ann ":    {Text: "nn"},
		"bob":            {Text: "pla"},
		"bob ":           {Text: "1.2.3"},
		"bob joanna":     {Since: began.Add(2 * time.Hour)},
		"":               {Text: "zoe"},
		" ":              {Text: "boblan"},
		"  ":             {Text: "bob\x04"},
	} {
		var got []string
		l := d.List(q, 10)
		for _, d := range l.Denials {
			got = append(got, d.Entries[0].Value)
		}
		if strings.Join(got, " ") != strings.TrimRight(want, " ") || l.Kept != 3 || !l.From.Equal(began.Add(time.Hour)) {
			t.Errorf("%+v: got %v, %d from %v; want %s", q, got, l.Kept, l.From, want)
		}
	}
	if l := d.List(denials.Query{}, 2); len(l.Denials) != 2 || l.Denials[0].Entries[0].Value != "bob" {
		t.Errorf("two: got %+v", l)
	}
}

// Requests that are decided at once can be noted in another order than that of their times.
func TestOrder(t *testing.T) {
	d := denials.New(denials.Options{Keep: 10})
	for _, after := range []time.Duration{2, 1, 4, 3} {
		d.Observe(denied("ann", after*time.Second))
	}
	var got []string
	l := d.List(denials.Query{}, 10)
	for _, denial := range l.Denials {
		got = append(got, denial.Time.Sub(began).String())
	}
	if strings.Join(got, " ") != "4s 3s 2s 1s" || !l.From.Equal(began.Add(time.Second)) {
		t.Errorf("got %s from %v, want the newest first, from the oldest", got, l.From)
	}
}

// Hashes are those of keys in the store.
func TestHashedValues(t *testing.T) {
	hash := service.NewValueHash([]byte("sixteen bytes or more"))
	d := denials.New(denials.Options{Keep: 3, Hash: hash})
	o := denied(strings.Repeat("ann", 100), 0)
	o.Verdicts[0].Entries = append(o.Verdicts[0].Entries, descriptors.Entry{Key: "plan"})
	d.Observe(o)
	got := d.List(denials.Query{}, 1).Denials[0].Entries
	if want := []descriptors.Entry{{Key: "user", Value: hash.Hash(strings.Repeat("ann", 100))}, {Key: "plan"}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if found := d.Find(got[0].Value, nil); len(found) != 1 || !found[0].Cut {
		t.Errorf("got %v", found)
	}
	if found := d.Find("ann", nil); len(found) != 0 {
		t.Errorf("got %v", found)
	}
	for value, want := range map[string]int{strings.Repeat("ann", 100): 1, "ann": 0, hash.Hash("ann"): 0} {
		for _, q := range []denials.Query{{Text: value}, {Value: value}} {
			if rows, groups := d.List(q, 9).Denials, d.Groups(q, 9).Groups; len(rows) != want || len(groups) != want {
				t.Errorf("%+v: %d rows, %d groups, want %d", q, len(rows), len(groups), want)
			}
		}
	}
}

// Few denials a second are all kept. Of many a sample is kept, whose rows stand for all.
func TestSampling(t *testing.T) {
	const seed = 1
	d := denials.New(denials.Options{Keep: 100_000, Random: rand.New(rand.NewPCG(seed, 0)).Uint32})
	at := time.Duration(0)
	run := func(perSecond, seconds int) (rows int, sum, largest int64) {
		from := began.Add(at)
		for range seconds * perSecond {
			d.Observe(denied("ann", at))
			at += time.Second / time.Duration(perSecond)
		}
		l := d.List(denials.Query{Since: from}, seconds*perSecond)
		for _, row := range l.Denials {
			sum += max(1, row.Sampled)
		}
		return len(l.Denials), sum, l.Sampled
	}
	if rows, _, largest := run(2000, 5); rows != 10_000 || largest != 1 {
		t.Errorf("2,000 a second: got %d rows, sampled %d", rows, largest)
	}
	rows, sum, largest := run(20_000, 10)
	if rows < 10_000 || rows > 30_000 || largest != 16 {
		t.Errorf("seed %d: 20,000 a second: got %d rows in 10 s, sampled %d", seed, rows, largest)
	}
	if sum < 190_000 || sum > 210_000 {
		t.Errorf("seed %d: the rows stand for %d denials, want 200,000", seed, sum)
	}
	at += time.Second
	if rows, _, largest := run(10, 1); rows != 10 || largest != 1 {
		t.Errorf("seed %d: after the crowd: got %d rows of 10, sampled %d", seed, rows, largest)
	}
	at -= time.Hour // the store's clock was set back
	if rows, _, largest := run(1000, 10); rows < 10_000 || largest != 1 {
		t.Errorf("an hour earlier: got %d rows, sampled %d", rows, largest)
	}
}

// Hostile requests take bounded memory, and all of it is used again.
func TestMemory(t *testing.T) {
	const keep = 10_000
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, o := range map[string]*service.Observation{
		"long":  denied(strings.Repeat("x", 16_000), 0),
		"many":  denied("ann", 0),
		"exact": denied(strings.Repeat("y", 156), 0),
	} {
		if name == "many" {
			o.Domain = strings.Repeat("d", 300)
			for i := range 30 {
				o.Verdicts[0].Entries = append(o.Verdicts[0].Entries, descriptors.Entry{Key: fmt.Sprint("a long key ", i), Value: strings.Repeat("ü", 300)})
			}
		}
		before := used()
		d := denials.New(denials.Options{Keep: keep})
		for i := range keep {
			o.At = began.Add(time.Duration(i) * time.Millisecond).UnixMicro()
			d.Observe(o)
		}
		if n := used() - before; n > 4<<20 {
			t.Errorf("%s: %d denials take %d bytes", name, keep, n)
		}
		l := d.List(denials.Query{}, 1)
		if l.Kept != keep {
			t.Errorf("%s: %d are kept", name, l.Kept)
		}
		entries := l.Denials[0].Entries
		if cut := strings.HasSuffix(entries[len(entries)-1].Value, "…"); cut == (name == "exact") {
			t.Errorf("%s: got %v", name, entries)
		}
		runtime.KeepAlive(d)
	}
	full := denials.New(denials.Options{Keep: 10})
	for range 10 {
		full.Observe(denied("ann", 0))
	}
	o := denied("bob", 0)
	if n := testing.AllocsPerRun(100, func() { full.Observe(o) }); n > 0 {
		t.Errorf("a denial allocates %v times", n)
	}
}

// A follower gets new denials in their order. A slow one holds nobody up, and misses rows.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := denials.New(denials.Options{Keep: 1000})
		d.Observe(denied("before", 0))
		got := make(chan string)
		ended := make(chan struct{})
		following := d.Follow(ctx, denials.Query{Text: "a"})
		go func() {
			defer close(ended)
			for denial := range following {
				got <- denial.Entries[0].Value
			}
		}()
		for _, name := range []string{"ann", "bob", "dan"} {
			d.Observe(denied(name, 0))
		}
		if first, second := <-got, <-got; first != "ann" || second != "dan" {
			t.Errorf("got %s, %s", first, second)
		}
		for i := range 1500 {
			d.Observe(denied(fmt.Sprint("a", i), time.Duration(i)*time.Millisecond))
		}
		if first := <-got; first != "a500" {
			t.Errorf("after 1,500 denials: got %s, want the oldest one of 1,000", first)
		}
		cancel()
		go func() {
			for range got {
			}
		}()
		<-ended
		close(got)
	})
}

func TestFind(t *testing.T) {
	d := denials.New(denials.Options{Keep: 10})
	now := time.Since(began)
	d.Observe(denied("ann", now-time.Hour))
	for i, name := range []string{"ann", "joanna", "ann", "bob"} {
		d.Observe(denied(name, now+time.Duration(i)*time.Second))
	}
	twice := denied("joanna", now+time.Minute) // by two limits
	second := twice.Verdicts[0]
	second.Limit = oneADay
	twice.Verdicts = append(twice.Verdicts, second)
	d.Observe(twice)
	var got []string
	for _, m := range d.Find("ann", nil) {
		got = append(got, fmt.Sprintf("%s %s %s %d %v", m.Domain, m.Rule, m.Entries[0].Value, m.Denied, m.LastDenial.Sub(began.Add(now)).Round(time.Second)))
	}
	slices.Sort(got)
	if want := []string{"shop shop.user ann 2 2s", "shop shop.user joanna 2 1m0s"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func BenchmarkObserve(b *testing.B) {
	for name, perSecond := range map[string]int64{"2000": 2000, "20000": 20_000} {
		b.Run("denied-"+name, func(b *testing.B) {
			d, o := denials.New(denials.Options{Keep: 10_000}), denied("0123456789abcdef", 0)
			b.ReportAllocs()
			for b.Loop() {
				o.At += 1e6 / perSecond
				d.Observe(o)
			}
		})
	}
	b.Run("allowed", func(b *testing.B) {
		d, o := denials.New(denials.Options{Keep: 10_000}), denied("ann", 0)
		o.Result, o.Verdicts[0].Is.Allowed = service.Passed, true
		for b.Loop() {
			d.Observe(o)
		}
	})
}

// Rows are whole, whoever writes and reads at once.
func TestAtOnce(t *testing.T) {
	d := denials.New(denials.Options{Keep: 500})
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			for j := range 5000 {
				o := denied(strings.Repeat(fmt.Sprint(i), j%20), time.Duration(j)*time.Millisecond)
				o.Verdicts[0].Hits = uint64(j % 20)
				d.Observe(o)
			}
		})
	}
	for range 20 {
		for _, row := range d.List(denials.Query{Text: "user"}, 1000).Denials {
			if len(row.Entries) != 1 || len(row.Entries[0].Value) != int(row.Cost) {
				t.Fatalf("got %+v", row)
			}
		}
	}
	working.Wait()
}

// A text that is not UTF-8 keeps its bytes, also where it is cut, and is found by what people are
// shown of it.
func TestAnyText(t *testing.T) {
	d := denials.New(denials.Options{Keep: 10})
	long := "\xffann" + strings.Repeat("ü", 100) + "\xfe"
	d.Observe(denied(long, 0))
	d.Observe(denied(`\xffann`, 0))
	for text, want := range map[string]int{"\xffann": 1, "ann": 2, `\xffann`: 2, `\xfe`: 0, "\uFFFD": 0} {
		found := d.Find(text, nil)
		if got := len(d.List(denials.Query{Text: text}, 10).Denials); got != want || len(found) != want {
			t.Errorf("%q: listed %d, found %d, want %d", text, got, len(found), want)
		}
		for _, m := range found {
			if m.Cut && m.Entries[0].Value != long[:4+2*(len(m.Entries[0].Value)-7)/2]+"…" {
				t.Errorf("kept %q", m.Entries[0].Value)
			}
		}
	}
}
