package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/test/backendtest"
)

// restarted is a process that ends and begins again before each batch.
type restarted struct {
	t  testing.TB
	mu sync.Mutex
	*memory.Store
}

func (s *restarted) Apply(ctx context.Context, b *backends.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Ping(ctx) != nil {
		return s.Store.Apply(ctx, b)
	}
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		s.t.Error(err)
	}
	if s.Store = before(s.t); s.Load(&file) != nil {
		s.t.Error("it cannot be read")
	}
	return s.Store.Apply(ctx, b)
}

func (s *restarted) Now() int64 { return time.Now().UnixMicro() }

// before is a store whose clock is before all cells end.
func before(t testing.TB) *memory.Store {
	t.Helper()
	s, err := memory.New(memory.Options{MaxKeys: 1 << 20, Now: func() int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRestarts: the suite passes also if a process ends and begins again between any two batches.
func TestRestarts(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backends.Store {
		if strings.HasSuffix(t.Name(), "/Pages") { // their positions are of one process
			return before(t)
		}
		return &restarted{t: t, Store: before(t)}
	})
}

// TestRestartWithLess: cells that have ended are not kept, and where there is less room than before
// the cells that end last are kept. A key is found again whatever its length.
func TestRestartWithLess(t *testing.T) {
	s, now := before(t), time.Now().UnixMicro()
	for i := range 20 {
		charge(t, s, fmt.Sprint(i), 0, now+int64(1000+i)*1_000_000)
	}
	charge(t, s, "ended", 0, now-1)
	charge(t, s, strings.Repeat("long", 1000), 0, now+3_600_000_000)
	var file bytes.Buffer
	if err := s.Save(&file); err != nil {
		t.Fatal(err)
	}
	anew := open(t, 10)
	if err := anew.Load(&file); err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"19", "11", strings.Repeat("long", 1000), "10", "0", "ended"} {
		if got := charge(t, anew, key, now, now+7_200_000_000); (got == 2) != (i < 3) {
			t.Errorf("%.10s was hit %d times", key, got)
		}
	}
}

// TestRestartAfterAGrant: the window after a grant counts with the hits before it, also after a restart.
func TestRestartAfterAGrant(t *testing.T) {
	s := before(t)
	op := hit("granted", 1000, 3000)
	op.Limit = &backends.Limit{Den: 1, Span: backends.Sliding, Window: 1000, Unit: backends.Amount{Whole: 1}}
	op.By, op.Mark = backends.Amount{Whole: 8}, 1
	apply(t, s, op)
	op.Verb = backends.Grant
	apply(t, s, op)
	var file bytes.Buffer
	anew := before(t)
	if err := errors.Join(s.Save(&file), anew.Load(&file)); err != nil {
		t.Fatal(err)
	}
	op.Verb, op.Now, op.Until, op.Mark = backends.Charge, 2000, 4000, 2
	b := backends.Batch{Ops: []backends.Op{op.Look()}, Replies: make([]backends.Reply, 1)}
	if err := anew.Apply(t.Context(), &b); err != nil || b.Replies[0].Prev != 8 {
		t.Errorf("the window before has %d hits (%v), want 8", b.Replies[0].Prev, err)
	}
}

// BenchmarkSave reports the longest time for which a lock is held, and the heap that Save takes.
func BenchmarkSave(b *testing.B) {
	for _, cells := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(cells), func(b *testing.B) {
			s := open(b, cells)
			end := time.Now().Add(time.Hour).UnixMicro()
			for i := range cells {
				charge(b, s, fmt.Sprintf("bench|user=v0-%d|1h|490473", i), 0, end)
			}
			file := &slowest{last: time.Now()}
			b.ReportAllocs()
			for b.Loop() {
				file.last = time.Now()
				if err := s.Save(file); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(file.between.Microseconds()), "µs-between-writes")
			b.ReportMetric(float64(file.bytes)/float64(b.N*cells), "bytes/cell")
		})
	}
}

// slowest measures the longest time between two writes.
type slowest struct {
	last    time.Time
	between time.Duration
	bytes   int
}

func (w *slowest) Write(p []byte) (int, error) {
	w.between, w.last = max(w.between, time.Since(w.last)), time.Now()
	w.bytes += len(p)
	return len(p), nil
}
