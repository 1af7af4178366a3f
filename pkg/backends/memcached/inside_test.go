package memcached

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
)

func TestSafeKeysAreLegalAndDistinct(t *testing.T) {
	long := strings.Repeat("long/", 100)
	seen := map[string]string{}
	for _, key := range []string{
		"", " ", "a", "a b", "a\tb", "a_b", "a\x7fb", "a\r\n", "ü", long, long + "x", long[:250], long[:251],
		StoredKey("a b"), StoredKey(long), StoredKey(StoredKey(long)), // names that a caller made look hashed
	} {
		safe := StoredKey(key)
		if !isLegal(safe) {
			t.Errorf("%.30q becomes %q", key, safe)
		}
		if other, ok := seen[safe]; ok {
			t.Errorf("%.30q and %.30q share %q", key, other, safe)
		}
		seen[safe] = key
	}
	if got := StoredKey("domain/key_value"); got != "domain/key_value" {
		t.Errorf("a legal key becomes %q", got)
	}
	if got := StoredKey("domain/key with space"); !strings.HasPrefix(got, "domain/key_with_space~") {
		t.Errorf("the head of %q is not readable", got)
	}
}

func FuzzSafeKey(f *testing.F) {
	f.Add("a b", "a_b")
	f.Fuzz(func(t *testing.T, a, b string) {
		if !isLegal(StoredKey(a)) || a != b && StoredKey(a) == StoredKey(b) {
			t.Fatalf("%q: %q, %q: %q", a, StoredKey(a), b, StoredKey(b))
		}
	})
}

func TestExpiration(t *testing.T) {
	const day = 24 * 60 * 60
	now := time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		name string
		left int64 // µs
		now  time.Time
		want int64
	}{
		{"over already", -5, now, 2},
		{"a moment", 1, now, 2},
		{"a second", 1_000_000, now, 2},
		{"a second and a bit", 1_000_001, now, 3},
		{"30 days less the tick", (30*day - 1) * 1e6, now, 30 * day},
		{"30 days", 30 * day * 1e6, now, now.Unix() + 30*day + 1},
		{"a year", 365 * day * 1e6, now, now.Unix() + 365*day + 1},
		{"beyond 2038", 20 * 365 * day * 1e6, now, math.MaxInt32},
		{"for ever", math.MaxInt64, now, math.MaxInt32},
		{"a year in 2038", 365 * day * 1e6, time.Unix(math.MaxInt32-day, 0), 30 * day},
		{"a year after 2038", 365 * day * 1e6, time.Unix(math.MaxInt32+day, 0), 30 * day},
	} {
		if got := expiration(c.left, 0, c.now); int64(got) != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestRecordsSurviveTheWire(t *testing.T) {
	const rounds = 1000
	r := testenv.Random(t)
	for range rounds {
		var log backends.Log
		at := testenv.Between(r, 0, 1<<52)
		for range testenv.Between(r, 0, 50) {
			at += testenv.Between(r, 0, 1<<40)
			number := at
			if r.IntN(2) == 0 {
				number = testenv.Between(r, 1, 1<<53)
			}
			log = append(log, backends.Cost{At: at, Hits: testenv.Between(r, 1, backends.MaxCost*backends.MaxTimes), Number: number})
		}
		got, err := decodeLog(encodeLog(log))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(log) {
			t.Fatalf("%v %v, want %v", got, err, log)
		}
	}
	for _, f := range []struct {
		op   backends.Op
		cell backends.Cell
		text string
	}{
		{backends.Op{Limit: &backends.Limit{}, Until: 9}, backends.Cell{Value: backends.Amount{Whole: 12}, Until: 9}, "12"},
		{backends.Op{Limit: &backends.Limit{Span: backends.FirstHit}}, backends.Cell{Value: backends.Amount{Whole: 12}, Until: 99}, "12 99"},
		{backends.Op{Limit: &backends.Limit{Kind: backends.Meter}}, backends.Cell{Value: backends.Amount{Whole: 12, Frac: 3}}, "12 3"},
		{backends.Op{Limit: &backends.Limit{Kind: backends.Meter}}, backends.Cell{Value: backends.Amount{Whole: -12, Frac: 3}, Until: 99}, "-12 3 99"},
		{backends.Op{Limit: &backends.Limit{Span: backends.Carried}}, backends.Cell{Value: backends.Amount{Whole: 12}, Window: 28, Until: 99}, "12 28 99"},
		{backends.Op{Limit: &backends.Limit{Span: backends.Carried}}, backends.Cell{Value: backends.Amount{Whole: -12}, Window: 28, Until: 99}, "-12 28 99"},
		{backends.Op{Limit: &backends.Limit{Span: backends.Sliding}}, backends.Cell{Value: backends.Amount{Whole: 12}, Window: 28, Prev: 7, Until: 99}, "12 28 99 7"},
		{backends.Op{Limit: &backends.Limit{Kind: backends.Meter, Den: 7, Shift: backends.Amount{Whole: 5, Frac: 5}}},
			backends.Cell{Value: backends.Amount{Whole: 12, Frac: 3}}, "12 3"},
		{backends.Op{Limit: &backends.Limit{Kind: backends.Meter}}, backends.Cell{Value: backends.Amount{Whole: math.MaxInt64}}, fmt.Sprint(math.MaxInt64, 0)},
	} {
		open := backends.Lapsing{Number: 1 << 52, Stays: 5, Back: []backends.Record{{Ends: 7, Mark: 9, By: backends.Amount{Whole: 3, Frac: 1}}}}
		for text, lapsing := range map[string]backends.Lapsing{"": {}, ";4503599627370496:5;7:9:3:1": open} {
			r := &record{op: &f.op, State: backends.State{Cell: f.cell, Open: lapsing}}
			item := r.encode("key")
			if got := string(item.Value); got != f.text+text {
				t.Errorf("%+v is written as %q, want %q", r.State, got, f.text+text)
			}
			if back, err := decode(&f.op, item); err != nil || back.Cell != f.cell || !back.Open.Equal(lapsing) {
				t.Errorf("%q is read as %+v (%v), want %+v", item.Value, back, err, r.State)
			}
		}
	}
}

// FuzzDecode decodes any bytes: the result is an error or a value in range.
func FuzzDecode(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint32(0), []byte("12  "))
	f.Add(uint8(1), uint8(0), uint32(0), []byte("99999999999999999999 1"))
	f.Add(uint8(2), uint8(0), uint32(0), bytes.Repeat([]byte{0xff}, 20))
	f.Add(uint8(0), uint8(0), uint32(27), []byte("12;4503599627370496:5;7:9:3:1"))
	f.Add(uint8(2), uint8(0), uint32(4), []byte("\x02\x05;1:2"))
	f.Add(uint8(0), uint8(0), uint32(5), []byte("12hello"))
	f.Fuzz(func(t *testing.T, kind, span uint8, open uint32, text []byte) {
		op := backends.Op{Limit: &backends.Limit{Kind: backends.Kind(kind % 3), Span: backends.Span(span % 5)}, Until: 1}
		r, err := decode(&op, &memcache.Item{Value: text, Flags: open})
		if err != nil {
			return
		}
		if open > 0 && text[len(text)-int(open)] != ';' {
			t.Fatalf("%q is read with flags of %d, which this store has not written", text, open)
		}
		if r.Value.Frac < 0 || r.Until < 0 || r.Open.Number < 0 {
			t.Fatalf("%q is read as %+v", text, r.Cell)
		}
		last := int64(0)
		for _, e := range r.Log {
			if e.Hits == 0 || e.At < last {
				t.Fatalf("%q is read as %+v", text, r.Log)
			}
			last = e.At
		}
	})
}

func TestServersShareTheKeys(t *testing.T) {
	names := []string{"a:11211", "b:11211", "c:11211", "/run/d.sock"}
	list := listOf(names...)
	reversed := listOf("/run/d.sock", "c:11211", "b:11211", "a:11211", "a:11211")
	fewer := listOf(names[:3]...)
	const keys = 8000
	count := map[string]int{}
	for i := range keys {
		key := fmt.Sprintf("domain/user_%d", i)
		at := list[list.pick(key)].address
		count[at]++
		if other := reversed[reversed.pick(key)].address; other != at {
			t.Fatalf("%s is at %s, in another order at %s", key, at, other)
		}
		if other := fewer[fewer.pick(key)].address; at != names[3] && other != at {
			t.Fatalf("%s moved from %s to %s though another server left", key, at, other)
		}
	}
	for _, name := range names {
		if n := count[name]; n < keys/4*9/10 || n > keys/4*11/10 {
			t.Errorf("%s has %d of %d keys, want about a quarter", name, n, keys)
		}
	}
}

// TestKeysWithOneTagShareAServer: the limits of one descriptor are decided together.
func TestKeysWithOneTagShareAServer(t *testing.T) {
	list := listOf("10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211")
	for i := range 1000 {
		tag := fmt.Sprintf("{shop|user=%d}", i)
		if a, b := list.pick(tag+"|10s|1"), list.pick(tag+"|sw1m|2"); a != b {
			t.Fatalf("cells of %s are on servers %d and %d", tag, a, b)
		}
	}
}

func listOf(addresses ...string) serverList {
	return newServers(addresses, func(address string) *server { return openServer(address, &Options{Watch: &breaker.Watch{}}) }).now()
}
