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

// TestRecordsSurviveTheWire: a cell of each kind is read as it was written. Only a fixed window without credit
// and reservations is written in digits, which incr reads.
func TestRecordsSurviveTheWire(t *testing.T) {
	const rounds = 1000
	r := testenv.Random(t)
	number := func(most int64) int64 { return testenv.Between(r, 0, most) * int64(r.IntN(2)) }
	for range rounds {
		op := backends.Op{Limit: &backends.Limit{Kind: backends.Kind(r.IntN(3)), Span: backends.Span(r.IntN(5))}, Until: 9}
		want := &record{op: &op}
		want.Value = backends.Amount{Whole: number(math.MaxInt64), Frac: number(1 << 50)}
		want.Prev, want.Window, want.Base, want.Until = number(1<<52), number(1<<32), number(1<<52), number(1<<53)
		if r.IntN(2) == 0 {
			want.Value.Whole = -want.Value.Whole
		}
		if want.Open = (backends.Lapsing{Number: number(1 << 53)}); want.Open.Number > 0 {
			for range r.IntN(5) {
				of := backends.Record{Ends: number(1 << 53), Mark: number(1 << 53), By: backends.Amount{Whole: number(1 << 53), Frac: number(9)}}
				want.Open.Held = append(want.Open.Held, of)
			}
		}
		for at := number(1 << 52); r.IntN(50) > 0; at += number(1 << 40) {
			hits := number(backends.MaxCost*backends.MaxTimes) + 1
			want.Log = append(want.Log, backends.Cost{At: at, Hits: hits - 2*hits*int64(r.IntN(2)), Number: at + number(1<<53)})
		}
		for range max(0, r.IntN(2+maxLast)-1) {
			of := backends.Record{Mark: number(1 << 53), Ends: 1 << 53, Number: number(1 << 53), At: number(1 << 53)}
			of.By, of.Settled = backends.Amount{Whole: number(1 << 53), Frac: number(9)}, r.IntN(2) == 0
			want.last = append(want.last, dated{of, fmt.Sprint("key|hold|", number(9)), 1 << 50})
		}
		if op.Kind == backends.Counter {
			want.Value.Whole = min(want.Value.Whole, backends.MaxValue)
		}
		digits := isNumber(&op) && want.Value.Whole >= 0 && want.Open.Number == 0 && len(want.last) == 0
		if digits {
			want.State = backends.State{Cell: backends.Cell{Value: backends.Amount{Whole: want.Value.Whole}, Until: 9}}
		}
		item := want.encode("key")
		got, err := decode(&op, item)
		if err != nil || fmt.Sprint(got.State) != fmt.Sprint(want.State) || fmt.Sprint(got.last) != fmt.Sprint(want.last) {
			t.Fatalf("%q is read as %+v (%v), want %+v", item.Value, got, err, want.State)
		}
		if text := fmt.Sprint(want.Value.Whole); (string(item.Value) == text) != digits {
			t.Fatalf("%+v of %+v is written as %q", want.State, op.Limit, item.Value)
		}
	}
}

// FuzzDecode decodes any bytes: the result is an error or a value in range.
func FuzzDecode(f *testing.F) {
	f.Add(uint8(0), uint8(0), []byte("12  "))
	f.Add(uint8(0), uint8(0), []byte("12hello"))
	f.Add(uint8(0), uint8(0), []byte("-12"))
	f.Add(uint8(1), uint8(0), append([]byte{0x90}, make([]byte, 10)...))
	f.Add(uint8(1), uint8(0), append([]byte{0x90, 2, 1}, make([]byte, 8)...)) // a fraction below 0
	f.Add(uint8(2), uint8(0), append([]byte{0xa0}, bytes.Repeat([]byte{0xff}, 20)...))
	f.Add(uint8(2), uint8(0), append(append([]byte{0xa0}, make([]byte, 9)...), 4, 2, 2, 0, 2, 2, 0))
	f.Add(uint8(2), uint8(0), append(append([]byte{0xa0}, make([]byte, 9)...), 4, 2, 2, 0, 1, 2, 0)) // not in order
	f.Add(uint8(2), uint8(0), append(append([]byte{0xa0}, make([]byte, 9)...), 2, 2, 2, 0, 0))       // a byte too many
	f.Fuzz(func(t *testing.T, kind, span uint8, text []byte) {
		op := backends.Op{Limit: &backends.Limit{Kind: backends.Kind(kind % 3), Span: backends.Span(span % 5)}, Until: 1}
		r, err := decode(&op, &memcache.Item{Value: text})
		if err != nil {
			return
		}
		if r.Value.Whole > backends.MaxValue && op.Kind == backends.Counter || r.Value.Frac < 0 || min(r.Until, r.Prev, r.Base, r.Window) < 0 || r.Open.Number < 0 {
			t.Fatalf("%q is read as %+v", text, r.Cell)
		}
		last := int64(0)
		for _, e := range r.Log {
			if e.Hits == 0 || e.At < last {
				t.Fatalf("%q is read as %+v", text, r.Log)
			}
			last = e.At
		}
		item := r.encode("key")
		if again, err := decode(&op, item); err != nil || !bytes.Equal(again.encode("key").Value, item.Value) {
			t.Fatalf("%q is read as %+v, and written as %q, which is read as %+v (%v)", text, r.State, item.Value, again, err)
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
