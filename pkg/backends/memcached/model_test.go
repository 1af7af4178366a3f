package memcached_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/backendtest"
	"example.org/rls/pkg/backends/memcached"
)

// TestCellsFollowTheSteps applies random operations to a cell at random times
// on a fake clock; the replies equal the replies of the definition in Go.
func TestCellsFollowTheSteps(t *testing.T) {
	server := testenv.Memcached(t)
	s := open(t, memcached.Options{Servers: []string{server.Addr}})
	var keys atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		base := backends.Op{
			Key:    fmt.Sprint("model", keys.Add(1)),
			Kind:   rapid.SampledFrom([]backends.Kind{backends.Counter, backends.Meter, backends.List}).Draw(t, "kind"),
			Span:   rapid.SampledFrom([]backends.Span{backends.Fixed, backends.FirstHit, backends.EveryHit}).Draw(t, "span"),
			Now:    epoch,
			Den:    1,
			Window: rapid.Int64Range(1, 40*second).Draw(t, "window"),
		}
		den := rapid.Int64Range(1, 9).Draw(t, "den") // comes from the limit
		end := epoch + 1000*second                   // of the fixed window
		model := backendtest.NewModel()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			op := base
			op.Times = rapid.Int64Range(1, 5).Draw(t, "times")
			op.Refund = rapid.IntRange(0, 4).Draw(t, "refund") == 0
			base.Now = min(base.Now+rapid.Int64Range(0, 15*second).Draw(t, "pause"), end-1)
			op.Now = base.Now
			op.Until = end
			if op.Span != backends.Fixed {
				op.Until = op.Now + op.Window
			}
			op.By.Whole = rapid.SampledFrom([]int64{0, 1, 3, 1 << 33, backends.MaxCost}).Draw(t, "by")
			op.Max.Whole = rapid.SampledFrom([]int64{0, 4, 1 << 34, backends.MaxValue}).Draw(t, "max")
			if op.Kind == backends.Meter {
				op.Den = den
				op.By = backends.Amount{Whole: rapid.Int64Range(0, 9*second).Draw(t, "micros"), Frac: rapid.Int64Range(0, op.Den-1).Draw(t, "frac")}
				op.Max = backends.Amount{Whole: op.Now + rapid.Int64Range(0, 60*second).Draw(t, "tolerance")}
				op.Furthest = op.Max.Add(backends.Amount{Whole: rapid.Int64Range(0, 20*second).Draw(t, "furthest")}, op.Den)
			}
			if rapid.Bool().Draw(t, "always") {
				op.Max = backends.NoMax
			}
			op.ChargeDenied = op.Kind == backends.Counter && !op.Refund && rapid.Bool().Draw(t, "charge denied")

			b := batch(op)
			if err := s.Apply(context.Background(), b); err != nil {
				t.Fatal(err)
			}
			want := batch(op)
			if err := model.Apply(context.Background(), want); err != nil {
				t.Fatal(err)
			}
			if b.Replies[0] != want.Replies[0] {
				t.Fatalf("%+v:\ngot  %+v\nwant %+v", op, b.Replies[0], want.Replies[0])
			}
		}
	})
}
