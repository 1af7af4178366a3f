package memcached_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memcached"
)

const second = int64(1e6)

// epoch is where the tests' fake clocks stand.
const epoch = 1_900_000_000 * second

// hit charges cost in a one-hour window that began at epoch; max < 0 is no
// limit.
func hit(key string, cost, max int64) backends.Op {
	op := backends.Op{
		Limit: &backends.Limit{Kind: backends.Counter, Den: 1},
		Key:   key, Now: epoch, Times: 1, Until: epoch + 3600*second,
		By: backends.Amount{Whole: cost}, Max: backends.Amount{Whole: max}}
	if max < 0 {
		op.Max = backends.NoMax
	}
	return op
}

func batch(ops ...backends.Op) *backends.Batch {
	return &backends.Batch{Ops: ops, Replies: make([]backends.Reply, len(ops))}
}

// apply applies one operation or fails the test.
func apply(t testing.TB, s *memcached.Store, op backends.Op) backends.Reply {
	t.Helper()
	b := batch(op)
	if err := s.Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	return b.Replies[0]
}

// say sends a line to a memcached and returns the first line of its answer.
func say(t testing.TB, addr, line string) string {
	t.Helper()
	first, _, _ := strings.Cut(answer(t, addr, line), "\r\n")
	return first
}

// answer sends a line to a memcached and returns all that it answers.
func answer(t testing.TB, addr, line string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, line+"\r\nquit\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// ttl is how many seconds memcached will still keep the cell.
func ttl(t testing.TB, addr, key string) int64 {
	t.Helper()
	answer := say(t, addr, "mg "+key+" t")
	n, err := strconv.ParseInt(strings.TrimPrefix(answer, "HD t"), 10, 64)
	if err != nil {
		t.Fatalf("expiry of %s: %q", key, answer)
	}
	return n
}

func TestJitterSpreadsExpiry(t *testing.T) {
	server := testenv.Memcached(t)
	s := open(t, memcached.Options{Servers: []string{server.Addr}, ExpirationJitter: 5 * time.Minute})
	var seen []int64
	for i := range 20 {
		op := hit(fmt.Sprint("jitter", i), 1, []int64{-1, 5}[i%2]) // incr, and compare-and-swap
		apply(t, s, op)
		got := ttl(t, server.Addr, op.Key)
		if got < 3590 || got > 3902 {
			t.Fatalf("kept for %d s, want 3600 to 3900", got)
		}
		seen = append(seen, got)
	}
	if slices.Max(seen)-slices.Min(seen) < 10 {
		t.Fatalf("expiries are not spread: %v", seen)
	}
}

// TestOneSecondWindowIsRememberedForASecond: memcached's seconds do not begin
// together with the windows. Wherever in one of memcached's seconds a hit falls,
// its counter must not expire before its window ends.
func TestOneSecondWindowIsRememberedForASecond(t *testing.T) {
	s, _ := start(t)
	start := time.Now()
	born := map[string]time.Time{}
	testenv.Eventually(t, patience, func() bool {
		if n := len(born); n < 10 && time.Since(start) > time.Duration(n)*100*time.Millisecond {
			op := hit(fmt.Sprint("second", n), 1, -1)
			op.Until = epoch + second
			born[op.Key] = time.Now()
			apply(t, s, op)
		}
		gone := 0
		for key, at := range born {
			if apply(t, s, hit(key, 0, -1)).Value.Whole == 1 {
				continue
			}
			if d := time.Since(at); d < time.Second {
				t.Fatalf("forgotten after %v", d)
			}
			gone++
		}
		return gone == 10
	}, "the cells go")
}

func TestACheckLeavesNothingBehind(t *testing.T) {
	s, server := start(t)
	list := backends.Op{
		Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: second},
		Key:   "check", Now: epoch, Times: 1, By: backends.Amount{Whole: 1},
	}
	for _, op := range []backends.Op{
		list, list.Look(), list.Inverse(0),
		hit("check", 0, -1), hit("check", 0, 5), hit("check", 1, 0), hit("check", 1, -1).Inverse(0), hit("check", 0, -1).Look(),
	} {
		if r := apply(t, s, op); r.Value.Whole != 0 {
			t.Errorf("%+v: %+v", op, r)
		}
	}
	if got := say(t, server.Addr, "mg check s"); got != "EN" {
		t.Errorf("memcached has %q", got)
	}
}

// TestChargingAlwaysAndConditionallyShareACell: unconditional charges (incr) and
// conditional charges (compare-and-swap) work on one cell, because a reload may
// change the rule's charge.
func TestChargingAlwaysAndConditionallyShareACell(t *testing.T) {
	s, server := start(t)
	for i, step := range []struct {
		op            backends.Op
		value, admits int64
	}{
		{hit("both", 9, 10), 9, 1},
		{hit("both", 3, 10), 9, 0},
		{hit("both", 3, -1), 12, 1},
		{hit("both", 5, -1).Inverse(0), 7, 1}, // memcached now has "7 "
		{hit("both", 2, 10), 9, 1},
		{hit("both", 1<<33, -1), 1<<33 + 9, 1},
		{hit("both", 1, 1<<40), 1<<33 + 10, 1},
	} {
		if r := apply(t, s, step.op); r.Value.Whole != step.value || r.Admitted != step.admits {
			t.Fatalf("step %d: %+v, want %d, admitted %d", i, r, step.value, step.admits)
		}
	}
	if got := say(t, server.Addr, "incr both 0"); got != strconv.Itoa(1<<33+10) {
		t.Fatalf("the cell is %q, want plain text", got)
	}
}

func TestLogOfTenThousandCharges(t *testing.T) {
	s, server := start(t)
	op := backends.Op{
		Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: 366 * 24 * 3600 * second},
		Key:   "log", Times: 1,
		By: backends.Amount{Whole: backends.MaxCost}, Max: backends.NoMax}
	const charges = 10_000
	// Far apart and dear: as long as a log can get. In batches, to save time.
	for n := range int64(charges / 100) {
		var b backends.Batch
		for i := range int64(100) {
			op.Now = epoch + (n*100+i)*3000*second
			b.Ops = append(b.Ops, op)
		}
		b.Replies = make([]backends.Reply, 100)
		if err := s.Apply(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
	}
	op.By.Whole = 1
	op.Max.Whole = charges * backends.MaxCost
	r := apply(t, s, op)
	if r.Admitted != 0 || r.Value != op.Max || r.RetryAt != epoch+op.Window {
		t.Fatalf("%+v, want a full log until its first charge leaves", r)
	}
	size := strings.TrimPrefix(say(t, server.Addr, "mg log s"), "HD s")
	if n, err := strconv.Atoi(size); err != nil || n > 200_000 {
		t.Fatalf("%d charges take %q bytes", charges, size)
	}
}

func TestManyLongKeysInOneRead(t *testing.T) {
	s, _ := start(t)
	var b backends.Batch
	for i := range 500 {
		b.Ops = append(b.Ops, hit(fmt.Sprintf("%d%s", i, strings.Repeat("k", 240)), 1, 1))
	}
	for _, admitted := range []int64{1, 0} {
		b.Replies = make([]backends.Reply, len(b.Ops))
		if err := s.Apply(context.Background(), &b); err != nil {
			t.Fatal(err)
		}
		for i, r := range b.Replies {
			if r.Admitted != admitted {
				t.Fatalf("operation %d: %+v, want admitted %d", i, r, admitted)
			}
		}
	}
}

func TestAHundredCallersGetExactlyTheLimit(t *testing.T) {
	s, _ := start(t)
	for name, op := range map[string]backends.Op{
		"counter": hit("counter", 1, 40),
		"meter": {Limit: &backends.Limit{Kind: backends.Meter, Den: 1, Full: backends.NoMax}, Key: "meter", Now: epoch, Times: 1,
			By: backends.Amount{Whole: second}, Max: backends.Amount{Whole: epoch + 40*second}},
		"list": {Limit: &backends.Limit{Kind: backends.List, Den: 1, Window: 60 * second}, Key: "list", Now: epoch, Times: 1,
			By: backends.Amount{Whole: 1}, Max: backends.Amount{Whole: 40}},
	} {
		t.Run(name, func(t *testing.T) {
			var admitted atomic.Int64
			err := errors.Join(together(100, func(int) error {
				b := batch(op)
				err := s.Apply(context.Background(), b)
				admitted.Add(b.Replies[0].Admitted)
				return err
			})...)
			if admitted.Load() != 40 || err != nil {
				t.Fatalf("%d admitted, want 40; %v", admitted.Load(), err)
			}
		})
	}
}

// TestAllOrNothingUnderContention: batches share cells, and one cell has little
// room. A batch that this cell refuses leaves no charge on the other cells, in
// whatever order the calls arrive.
func TestAllOrNothingUnderContention(t *testing.T) {
	s, _ := start(t)
	var admitted atomic.Int64
	err := errors.Join(together(60, func(int) error {
		b := batch(hit("wide", 1, 1000), hit("always", 1, -1), hit("scarce", 1, 20))
		b.AllOrNothing = true
		err := s.Apply(context.Background(), b)
		if !b.Refused {
			admitted.Add(1)
		}
		return err
	})...)
	if admitted.Load() > 20 || err != nil {
		t.Fatalf("%d admitted, want at most 20; %v", admitted.Load(), err)
	}
	for _, key := range []string{"wide", "always", "scarce"} {
		if got := apply(t, s, hit(key, 0, -1)).Value.Whole; got != admitted.Load() {
			t.Errorf("%s was charged %d times by %d admitted batches", key, got, admitted.Load())
		}
	}
}

// together calls f n times at once.
func together(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	return errs
}

// TestLosingEveryRaceIsAnError: if another writer is always faster, the operation
// has an error and is not allowed silently. Operations on other cells are decided.
func TestLosingEveryRaceIsAnError(t *testing.T) {
	server := testenv.Memcached(t)
	rival := testenv.NewRelay(t, server.Addr)
	rival.Watch(func(request []byte) {
		if verb, rest, _ := bytes.Cut(request, []byte(" ")); string(verb) == "cas" || string(verb) == "add" {
			key, _, _ := bytes.Cut(rest, []byte(" "))
			say(t, server.Addr, fmt.Sprintf("set %s 0 0 1\r\n1", key))
		}
	})
	s := open(t, memcached.Options{Servers: []string{rival.Addr}})
	for _, allOrNothing := range []bool{false, true} {
		b := batch(hit("contended", 1, 5), hit("contended-too", 1, 5), hit("calm", 1, -1))
		b.AllOrNothing = allOrNothing
		if err := s.Apply(context.Background(), b); !errors.Is(err, backends.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		if r := b.Replies[2]; r.Err != nil || r.Admitted != 1 {
			t.Errorf("the operation on another cell: %+v", r)
		}
	}
	// incr needs no second try. When add fails because another writer has created
	// the counter, incr raises that counter.
	if got := apply(t, s, hit("lost-add", 3, -1)).Value.Whole; got != 4 {
		t.Fatalf("3 hits beside another one count %d, want 4", got)
	}
}

// TestRefusedBatchRefundsNothing: a refund in an all-or-nothing batch is made only
// when the batch is admitted.
func TestRefusedBatchRefundsNothing(t *testing.T) {
	server := testenv.Memcached(t)
	others := 0
	network := testenv.NewRelay(t, server.Addr)
	network.Watch(func(request []byte) {
		if bytes.HasPrefix(request, []byte("cas scarce ")) { // another one takes the last
			others++
			say(t, server.Addr, "set scarce 0 0 1\r\n5")
		}
	})
	s := open(t, memcached.Options{Servers: []string{network.Addr}})
	apply(t, s, hit("refunded", 3, -1))
	apply(t, s, hit("scarce", 4, -1))
	apply(t, s, hit("free", 1, -1))
	b := batch(hit("refunded", 2, -1).Inverse(0), hit("scarce", 1, 5), hit("free", 1, 5))
	b.AllOrNothing = true
	if err := s.Apply(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	if !b.Refused || b.Replies[0].Value.Whole != 3 || b.Replies[1].Value.Whole != 5 || b.Replies[2].Value.Whole != 1 || others != 1 {
		t.Fatalf("refused %v, %+v, %d others", b.Refused, b.Replies, others)
	}
	for key, want := range map[string]int64{"refunded": 3, "scarce": 5, "free": 1} {
		if got := apply(t, s, hit(key, 0, -1)).Value.Whole; got != want {
			t.Errorf("%s is %d, want %d", key, got, want)
		}
	}
}

func TestAForeignCellIsAnError(t *testing.T) {
	s, server := start(t)
	say(t, server.Addr, "set foreign 0 0 5\r\nhello")
	for _, max := range []int64{-1, 5} {
		if err := s.Apply(context.Background(), batch(hit("foreign", 1, max))); !errors.Is(err, backends.ErrUnavailable) {
			t.Errorf("max %d: got %v, want ErrUnavailable", max, err)
		}
	}
	if got := apply(t, s, hit("mine", 1, 5)).Value.Whole; got != 1 {
		t.Errorf("the next cell counts %d", got)
	}
}
