package memory_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
)

// hit charges a counter without a maximum.
func hit(key string, now, until int64) backends.Op {
	return backends.Op{
		Limit: &backends.Limit{Den: 1},
		Key:   key, Now: now, Until: until, Times: 1, By: backends.Amount{Whole: 1}, Max: backends.NoMax,
	}
}

func charge(t testing.TB, s *memory.Store, key string, now, until int64) int64 {
	t.Helper()
	return apply(t, s, hit(key, now, until))
}

// apply returns the count after op.
func apply(t testing.TB, s *memory.Store, op backends.Op) int64 {
	t.Helper()
	b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
	if err := s.Apply(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Replies[0].Value.Whole
}

func TestExpiredCellsMakeRoomFirst(t *testing.T) {
	s := open(t, 10)
	for i := range 10 {
		charge(t, s, fmt.Sprint("old", i), 0, 100)
	}
	for i := range 10 {
		charge(t, s, fmt.Sprint("new", i), 100, 1000)
	}
	if s.Evicted() != 0 || s.Len() != 10 {
		t.Fatalf("%d live cells evicted, %d held; want 0 and 10", s.Evicted(), s.Len())
	}
}

func TestTheCellThatExpiresSoonestMakesRoomNext(t *testing.T) {
	s := open(t, 10)
	for i := range 10 {
		charge(t, s, fmt.Sprint(i), 0, int64(1000-i)) // 9 expires first
	}
	charge(t, s, "another", 0, 2000)
	charge(t, s, "one more", 0, 2000)
	if s.Evicted() != 2 || s.Len() != 10 {
		t.Fatalf("%d live cells evicted, %d held; want 2 and 10", s.Evicted(), s.Len())
	}
	for i := range 8 {
		if got := charge(t, s, fmt.Sprint(i), 0, int64(1000-i)); got != 2 {
			t.Errorf("cell %d was forgotten", i)
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestLongKeysCostLittle: keys of up to 16 KiB, each of another length, take at
// most 8 KiB each, and no key is taken for another key.
func TestLongKeysCostLittle(t *testing.T) {
	s := open(t, 100_000)
	const keys, most = 1000, 8 << 20
	long := strings.Repeat("x", 1<<20)
	before := heap()
	for i := range keys {
		if got := charge(t, s, long[:200+16*i], 0, 1000); got != 1 {
			t.Fatalf("key %d was taken for another", i)
		}
	}
	if after := heap(); after > before+most {
		t.Errorf("%d keys took %d KiB", keys, (after-before)>>10)
	}
	for i := range keys {
		if got := charge(t, s, long[:200+16*i], 0, 1000); got != 2 {
			t.Fatalf("key %d was forgotten", i)
		}
	}
	runtime.KeepAlive(s)
}

// TestKeysThatGoLeaveRoomForOthers: keys of one length use the memory of removed
// keys of other lengths.
func TestKeysThatGoLeaveRoomForOthers(t *testing.T) {
	const keys, most = 20_000, 500 // most bytes a key
	s := open(t, keys)
	before := heap()
	for length := 16; length <= 256; length += 48 {
		for i := range keys + keys/10 {
			charge(t, s, fmt.Sprintf("%0*d", length, i), 0, int64(1000*length+i))
		}
		if per := (heap() - before) / keys; per > most {
			t.Fatalf("%d bytes a key after keys of up to %d bytes, want at most %d", per, length, most)
		}
	}
	// No key is taken for another key.
	for i := keys; i < keys+keys/10; i++ {
		if got := charge(t, s, fmt.Sprintf("%0256d", i), 0, int64(1000*256+i)); got != 2 {
			t.Fatalf("key %d was hit %d times, want 2", i, got)
		}
	}
}

// TestExtendedCellsStay: when the store is full, a cell whose end has moved on
// is kept until its new end.
func TestExtendedCellsStay(t *testing.T) {
	s := open(t, 3)
	every := func(key string, now int64) int64 {
		op := hit(key, now, now+100)
		op.Span = backends.EveryHit
		return apply(t, s, op)
	}
	for now := int64(0); now < 1000; now += 50 {
		every("kept", now)
		charge(t, s, fmt.Sprint("other", now), now, now+10)
	}
	if got := every("kept", 1000); got != 21 {
		t.Fatalf("counted %d, want 21", got)
	}
}

func TestMaxKeysIsChecked(t *testing.T) {
	if _, err := memory.New(memory.Options{}); err == nil {
		t.Fatal("a store for no keys was opened")
	}
}

// BenchmarkBytesPerKey reports the memory that a million counters take.
func BenchmarkBytesPerKey(b *testing.B) {
	const keys = 1_000_000
	for b.Loop() {
		var before, after runtime.MemStats
		s := open(b, keys)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range keys {
			charge(b, s, fmt.Sprintf("bench|user=v0-%d|1h|490473", i), 0, 1000)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "bytes/key")
		runtime.KeepAlive(s)
	}
}

func BenchmarkApply(b *testing.B) {
	s := open(b, 100_000)
	ops := make([]backends.Op, 10_000)
	for i := range ops {
		ops[i] = hit(fmt.Sprint("bench|user=v0-", i), 0, 1000)
	}
	batch := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		batch.Ops[0] = ops[i%len(ops)]
		i++
		if err := s.Apply(context.Background(), &batch); err != nil {
			b.Fatal(err)
		}
	}
}
