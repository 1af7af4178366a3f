package near_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/test/backendtest"
)

type rig struct {
	t     *testing.T
	next  *server
	store *replica
}

func newRig(t *testing.T) *rig {
	t.Helper()
	next := newServer(t)
	return &rig{t, next, newDenying(t, next)}
}

func newDenying(t *testing.T, next backends.Store) *replica {
	t.Helper()
	return newReplicaWith(t, next, 1, near.Options{Deny: true, Go: never})
}

// never does no background work.
func never(func() error) bool { return false }

// charge decides one charge and says whether the store was asked.
func (r *rig) charge(spec algorithms.Spec, c algorithms.Charge) (algorithms.Decision, bool) {
	r.t.Helper()
	c.Now = r.next.Now()
	l := limit(r.t, spec)
	b := batchOf(l, c, "d|k")
	before := r.next.ops.Load()
	if err := r.store.Apply(context.Background(), b); err != nil {
		r.t.Fatal(err)
	}
	asked := r.next.ops.Load() > before
	if asked == b.Replies[0].Recalled {
		r.t.Fatalf("asked %v, recalled %v", asked, b.Replies[0].Recalled)
	}
	return l.Judge(&b.Ops[0], &b.Replies[0]), asked
}

func (r *rig) want(spec algorithms.Spec, c algorithms.Charge, allowed, asked bool) {
	r.t.Helper()
	if d, a := r.charge(spec, c); d.Allowed != allowed || a != asked {
		r.t.Fatalf("allowed %v, store asked %v; want %v, %v (%+v)", d.Allowed, a, allowed, asked, d)
	}
}

var (
	one    = algorithms.Charge{Cost: 1}
	fixed  = algorithms.Spec{Requests: 2, Window: 24 * 3600e9}
	bucket = algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 2, Window: 3600e9}
)

// TestConformance: replies from memory are the replies that the store would give.
func TestConformanceOfDenials(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backends.Store {
		m, err := memory.New(memory.Options{MaxKeys: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		return newDenying(t, m)
	},
		backendtest.Exceptions{"fixed window: a denied hit counts": "a denial from memory is not charged"})
}

func TestFullCellsAreDeniedFromMemory(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   algorithms.Spec
		charge algorithms.Charge
	}{
		{"fixed window", fixed, one},
		{"fixed window, admitted hits", fixed, algorithms.Charge{Cost: 1, AdmittedOnly: true}},
		{"token bucket", bucket, one},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.want(c.spec, c.charge, true, true)
			r.want(c.spec, c.charge, true, true)
			r.want(c.spec, c.charge, false, true) // and from now on it is known
			d, _ := r.charge(c.spec, c.charge)
			if asked := r.next.ops.Load(); asked != 3 || d.Allowed || d.Remaining != 0 || d.RetryAfter <= 0 {
				t.Fatalf("%d operations, %+v", asked, d)
			}
			r.next.clock.Add(1_000_000)
			r.want(c.spec, c.charge, false, true) // a refund elsewhere would be noticed
			r.want(c.spec, c.charge, false, false)
		})
	}
}

// refundsLast makes the refunds of a batch after its charges.
type refundsLast struct{ backends.Store }

func (s refundsLast) Apply(ctx context.Context, b *backends.Batch) (err error) {
	for _, refunds := range []bool{false, true} {
		for i := range b.Ops {
			if b.Ops[i].Verb.GivesBack() == refunds {
				one := backends.Batch{Ops: b.Ops[i : i+1], Replies: b.Replies[i : i+1]}
				err = errors.Join(err, s.Store.Apply(ctx, &one))
			}
		}
	}
	return err
}

// TestADenialBesideARefund is not remembered: the store may have given back after it had denied.
func TestADenialBesideARefund(t *testing.T) {
	r := newRig(t)
	r.store = newDenying(t, refundsLast{r.next})
	l := limit(t, bucket)
	r.want(bucket, algorithms.Charge{Cost: 2}, true, true)
	both := batchOf(l, algorithms.Charge{Cost: 1, Now: r.next.Now()}, "d|k", "d|k")
	both.Ops[0].Verb = backends.Refund
	if err := r.store.Apply(t.Context(), both); err != nil || both.Replies[1].Admitted != 0 {
		t.Fatalf("%v, %+v", err, both.Replies)
	}
	r.want(bucket, one, true, true)
}

func TestARaisedLimitIsDecidedAnew(t *testing.T) {
	for _, spec := range []algorithms.Spec{fixed, bucket} {
		r := newRig(t)
		for range 4 {
			r.charge(spec, algorithms.Charge{Cost: 1, AdmittedOnly: true})
		}
		spec.Requests, spec.Burst = 1000, 0
		if spec.Strategy == algorithms.TokenBucket {
			spec.Burst = 2000
		}
		r.want(spec, algorithms.Charge{Cost: 1, AdmittedOnly: true}, true, true)
	}
	r := newRig(t)
	for range 4 {
		r.charge(fixed, one)
	}
	raised := fixed
	raised.Requests = 1000
	r.want(raised, one, true, true)
}

func TestARefundIsNoticed(t *testing.T) {
	r := newRig(t)
	for range 4 {
		r.charge(bucket, one)
	}
	r.want(bucket, algorithms.Charge{Cost: 1, Refund: true}, true, true)
	r.want(bucket, one, true, true)
}

func TestSmallerCostsAndChecksAreAsked(t *testing.T) {
	r := newRig(t)
	admitted := algorithms.Charge{Cost: 5, AdmittedOnly: true}
	r.want(fixed, admitted, false, true)
	r.want(fixed, admitted, false, false)
	r.want(fixed, algorithms.Charge{Cost: 1, AdmittedOnly: true}, true, true)
	r.want(fixed, algorithms.Charge{Cost: 0, AdmittedOnly: true}, true, true)
}

func TestEndedCellsAreForgotten(t *testing.T) {
	r := newRig(t)
	r.next.clock.Add(24*3600*1_000_000 - 500_000) // half a second before the window ends
	for range 4 {
		r.charge(fixed, one)
	}
	r.want(fixed, one, false, false)
	r.next.clock.Add(500_000)
	r.want(fixed, one, true, true)
}

// besideFull fills the cell d|k and returns a batch with a hit on each of
// the cells.
func (r *rig) besideFull(ids ...string) backends.Batch {
	r.t.Helper()
	for range 3 { // the third fills the memory
		r.charge(fixed, one)
	}
	return *batchOf(limit(r.t, fixed), algorithms.Charge{Now: r.next.Now(), Cost: 1}, ids...)
}

// TestMixedBatch: the operations on remembered cells are answered from memory,
// and only the other operations of the batch go to the store.
func TestMixedBatch(t *testing.T) {
	r := newRig(t)
	b := r.besideFull("d|other", "d|k", "d|third")
	before := r.next.ops.Load()
	if err := r.store.Apply(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	if b.Replies[0].Value.Whole != 1 || b.Replies[2].Value.Whole != 1 || b.Replies[1].Value.Whole != 3 || r.next.ops.Load()-before != 2 {
		t.Fatalf("%+v, %d operations", b.Replies, r.next.ops.Load()-before)
	}
}

// denying is a store in which every cell is full.
type denying struct{ backends.Store }

func (denying) Apply(_ context.Context, b *backends.Batch) error {
	for i := range b.Ops {
		b.Replies[i] = backends.Reply{Until: b.Ops[i].Until}
	}
	return nil
}

// TestSize: the cache takes no more memory when callers send long keys.
func TestSize(t *testing.T) {
	const size, keys = 4 << 20, 50_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, length := range []int{10, 63, 64, 500} {
		before := heap()
		s := near.New(denying{}, near.Options{Timeout: time.Second, Deny: true, Cells: size / 320, Go: never})
		for i := range keys {
			b := backends.Batch{Ops: []backends.Op{{Limit: &backends.Limit{Den: 1}, Key: fmt.Sprintf("%0*d", length, i), Now: start, Until: start + 1_000_000, By: backends.Amount{Whole: 1}, Times: 1}}, Replies: make([]backends.Reply, 1)}
			if err := s.Apply(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
		}
		if took := heap() - before; took > size {
			t.Errorf("keys of %d bytes took %d KiB of %d", length, took>>10, size>>10)
		}
		runtime.KeepAlive(s)
	}
}

// TestLongKeys: long keys are remembered, and told apart by their last byte.
func TestLongKeysAreDenied(t *testing.T) {
	r := newRig(t)
	l := limit(t, algorithms.Spec{Requests: 1, Window: 24 * 3600e9})
	for _, length := range []int{10, 63, 64, 10_000} {
		for _, last := range []string{"a", "b"} {
			id := append(bytes.Repeat([]byte("x"), length), last...)
			b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
			for _, want := range []bool{false, true} {
				l.Plan(&b.Ops[0], algorithms.Identity{ID: id}, algorithms.Charge{Now: r.next.Now(), Cost: 2, AdmittedOnly: true})
				if err := r.store.Apply(context.Background(), &b); err != nil {
					t.Fatal(err)
				}
				if got := b.Replies[0].Recalled; got != want {
					t.Errorf("a key of %d bytes that ends in %s: recalled %v, want %v", length, last, got, want)
				}
			}
		}
	}
}

// TestAClockThatGoesBackLocksNothing: a cell that was remembered ahead of now
// is not used, and nobody waits longer than a window.
func TestAClockThatGoesBackLocksNothing(t *testing.T) {
	denied := algorithms.Charge{Cost: 1, AdmittedOnly: true}
	for _, spec := range []algorithms.Spec{
		{Requests: 2, Window: 60e9, FromFirstHit: true},
		{Strategy: algorithms.TokenBucket, Requests: 2, Window: 60e9},
		{Strategy: algorithms.LeakyBucket, Requests: 2, Window: 60e9},
	} {
		for _, back := range []int64{30, 3600} {
			t.Run(fmt.Sprintf("%v, %d s", spec.Strategy, back), func(t *testing.T) {
				r := newRig(t)
				for range 4 {
					r.charge(spec, denied)
				}
				r.want(spec, denied, false, false)
				r.next.clock.Add(-back * 1_000_000)
				r.want(spec, denied, false, true)
				r.next.clock.Add(61 * 1_000_000)
				r.want(spec, denied, true, true)
			})
		}
	}
}

// TestACellFromAheadIsAskedFor: a cell that was remembered ahead of now is not
// used, even if the limit can reach its value, so that a refund takes effect
// within a second of the clock.
func TestACellFromAheadIsAskedFor(t *testing.T) {
	spec := algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 2, Window: 60e9}
	two := algorithms.Charge{Cost: 2}
	r := newRig(t)
	r.charge(spec, one)
	r.want(spec, two, false, true)
	r.want(spec, two, false, false)
	r.next.clock.Add(-10 * 1_000_000)
	r.want(spec, two, false, true)
}

// TestARaisedBucketIsDecidedAnew: it is another bucket, and the old one stays empty.
func TestARaisedBucketIsDecidedAnew(t *testing.T) {
	slow := algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: 24 * 3600e9}
	fast := algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10_000, Window: 24 * 3600e9, Burst: 10}
	r := newRig(t)
	for range 11 {
		r.charge(slow, one)
	}
	r.want(slow, one, false, false)
	r.want(fast, one, true, true)
	r.want(slow, one, false, false)
}

// TestALimitOf0AsksNoStore, unless it refuses a group or an all-or-nothing batch whose
// other cells the memory does not know.
func TestALimitOf0AsksNoStore(t *testing.T) {
	for s := range algorithms.Names() {
		r := newRig(t)
		l := limit(t, algorithms.Spec{Strategy: algorithms.Strategy(s), Window: time.Minute})
		var zero backends.Op
		other := backends.Op{
			Limit: &backends.Limit{Den: 1},
			Key:   "other", Now: r.next.Now(), By: backends.Amount{Whole: 1}, Max: backends.NoMax, Times: 1, Until: r.next.Now() + 1,
		}
		l.Plan(&zero, algorithms.Identity{ID: []byte("d|k")}, algorithms.Charge{Now: r.next.Now(), Cost: 1, AdmittedOnly: true})
		for i, b := range []backends.Batch{{Ops: []backends.Op{zero}}, {Ops: []backends.Op{zero, other}, AllOrNothing: true}} {
			b.Replies = make([]backends.Reply, len(b.Ops))
			if err := r.store.Apply(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			if d := l.Judge(&zero, &b.Replies[0]); d.Allowed || d.RetryAfter != time.Minute && l.Strategy != algorithms.FixedWindow {
				t.Errorf("%v: %+v", l.Strategy, d)
			}
			if asked := r.next.ops.Load(); asked != int64(2*i) || b.Refused != (i == 1) || i == 1 && b.Replies[1].Value.Whole != 0 {
				t.Errorf("%v: the store was asked %d operations, refused %v, %+v", l.Strategy, asked, b.Refused, b.Replies)
			}
		}
	}
}

// TestARefusedGroupIsDeniedFromMemory: a group or an all-or-nothing batch with a full cell
// is refused without a call once its cells are known, which it does not forget, and the
// replies say how full the other cells are. A batch with operations that may pass goes to
// the store, and is no hit of the cache.
func TestARefusedGroupIsDeniedFromMemory(t *testing.T) {
	for name, c := range map[string]struct {
		tie  func(*backends.Batch)
		asks int64 // operations, once the cells are known
	}{
		"group": {func(b *backends.Batch) {
			b.Ops[0].Group, b.Ops[1].Group = 1, 1
			b.Ops, b.Replies = b.Ops[:2], b.Replies[:2]
		}, 0},
		"group beside another":        {func(b *backends.Batch) { b.Ops[0].Group, b.Ops[1].Group = 1, 1 }, 3},
		"all or nothing":              {func(b *backends.Batch) { b.AllOrNothing = true }, 0},
		"all or nothing, in lenience": {func(b *backends.Batch) { b.AllOrNothing, b.Ops[0].Role = true, backends.Lenient }, 3},
		"all or nothing, quotas apart": {func(b *backends.Batch) {
			b.AllOrNothing, b.Ops[0].Role, b.Ops[2].Role = true, backends.Quota, backends.Quota
		}, 3},
	} {
		r := newRig(t)
		b := r.besideFull("d|k", "d|other", "d|third")
		c.tie(&b)
		for i := range int64(2) {
			before := r.next.ops.Load()
			if err := r.store.Apply(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			if asked := r.next.ops.Load() - before; i > 0 && asked != c.asks || b.Replies[0].Admitted != 0 || b.Refused != (b.AllOrNothing && c.asks == 0) {
				t.Errorf("%s: %d operations, refused %v, %+v", name, asked, b.Refused, b.Replies)
			}
			if got := b.Replies[1]; got.Recalled != (i > 0 && c.asks == 0) || b.Refused && (got.Admitted != 1 || got.Value.Whole != 0) {
				t.Errorf("%s: %+v", name, b.Replies)
			}
		}
		hits := uint64(0)
		if c.asks == 0 {
			hits = 1 // the first batch asks for the other cells
		}
		if got := r.store.Cache(); got.Hits != hits || got.Hits+got.Misses != uint64(3+2*len(b.Ops)) {
			t.Errorf("%s: %+v, want %d hits", name, got, hits)
		}
	}
}

// TestACellThatOthersChargeSendsNoRefusedBatchToTheStore: it is reported at other moments than
// the full one. The reply shows it with the last hit.
func TestACellThatOthersChargeSendsNoRefusedBatchToTheStore(t *testing.T) {
	r := newRig(t)
	b := r.besideFull("d|k", "d|shared")
	b.AllOrNothing = true
	if err := r.store.Apply(t.Context(), &b); err != nil || !b.Refused {
		t.Fatal(err, b.Replies)
	}
	r.next.pass(time.Millisecond)
	other := batchOf(limit(t, fixed), algorithms.Charge{Now: r.next.Now(), Cost: 1}, "d|shared")
	asked := r.next.ops.Load() + 1
	if err := errors.Join(r.store.Apply(t.Context(), other), r.store.Apply(t.Context(), &b)); err != nil {
		t.Fatal(err)
	}
	if got := b.Replies[1]; !b.Refused || r.next.ops.Load() != asked || !got.Recalled || got.Value.Whole != 1 {
		t.Errorf("refused %v, %d operations, %+v", b.Refused, r.next.ops.Load()-asked, b.Replies)
	}
}

// TestCreditIsToldFromMemory: beside a full cell the memory says what remains of a bucket
// with a grant.
func TestCreditIsToldFromMemory(t *testing.T) {
	r := newRig(t)
	b := r.besideFull("d|k", "d|other")
	b.AllOrNothing = true
	l := limit(t, bucket)
	l.Plan(&b.Ops[1], algorithms.Identity{ID: []byte("d|other")}, algorithms.Charge{Now: r.next.Now(), Cost: 1})
	grant := backends.Batch{Ops: []backends.Op{b.Ops[1].Reset()}, Replies: make([]backends.Reply, 1)}
	l.Grant(&grant.Ops[0], 5)
	if err := errors.Join(r.store.Apply(t.Context(), &grant), r.store.Apply(t.Context(), &b)); err != nil {
		t.Fatal(err)
	}
	if got := l.Judge(&b.Ops[1], &b.Replies[1]); got.Remaining != 7 || !b.Replies[1].Recalled {
		t.Errorf("%+v, want 2 and 5 remaining, from memory; %+v", got, b.Replies[1])
	}
}

// TestPartOfABatchFails: when one server does not answer, the replies from memory
// and from the other servers stay valid.
func TestPartOfABatchFails(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.charge(fixed, one)
	}
	_ = r.next.Store.Close()
	l := limit(t, fixed)
	b := *batchOf(l, algorithms.Charge{Now: r.next.Now(), Cost: 1}, "d|k", "d|other")
	if err := r.store.Apply(context.Background(), &b); !errors.Is(err, backends.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if b.Replies[0].Err != nil || !b.Replies[0].Recalled || b.Replies[1].Err == nil {
		t.Errorf("got %+v", b.Replies)
	}
}

// TestAResetOrGrantForgetsTheCell at once.
func TestAResetOrGrantForgetsTheCell(t *testing.T) {
	spec := algorithms.Spec{Requests: 1, Window: time.Minute}
	for _, hits := range []int64{0, 1} {
		r := newRig(t)
		one := algorithms.Charge{Cost: 1}
		r.charge(spec, one)
		r.charge(spec, one)
		if d, asked := r.charge(spec, one); d.Allowed || asked {
			t.Fatalf("the denial is not remembered: %+v", d)
		}
		r.store.steer(limit(t, spec), "d|k", hits)
		if d, asked := r.charge(spec, one); !d.Allowed || !asked {
			t.Errorf("after a reset or a grant of %d: %+v, asked %v", hits, d, asked)
		}
	}
}

// TestADenialFromBeforeAResetIsNotRemembered: its reply may come after the reset's.
func TestADenialFromBeforeAResetIsNotRemembered(t *testing.T) {
	r := newRig(t)
	spec, one := algorithms.Spec{Requests: 1, Window: time.Minute}, algorithms.Charge{Cost: 1}
	r.charge(spec, one)
	r.next.after = func() {
		r.next.after = nil
		r.store.steer(limit(t, spec), "d|k", 0)
	}
	if d, _ := r.charge(spec, one); d.Allowed {
		t.Fatal("a full limit allowed a hit")
	}
	if d, asked := r.charge(spec, one); !d.Allowed || !asked {
		t.Errorf("after the reset: %+v, asked %v", d, asked)
	}
}

// TestADeniedKeyCostsOneOperationASecond, so that resets through other processes take
// effect.
func TestADeniedKeyCostsOneOperationASecond(t *testing.T) {
	r := newRig(t)
	spec, one := algorithms.Spec{Requests: 1, Window: time.Hour}, algorithms.Charge{Cost: 1}
	r.charge(spec, one)
	before := r.next.ops.Load()
	for range 10_000 {
		r.charge(spec, one)
		r.next.clock.Add(1000)
	}
	if ops := r.next.ops.Load() - before; ops < 10 || ops > 12 {
		t.Errorf("%d operations in 10 seconds", ops)
	}
}
