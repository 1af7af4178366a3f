package near_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/backends/near"
)

const (
	ms     = int64(1000)
	second = 1000 * ms
	minute = 60 * second
	start  = 1_800_057_600 * second // a round day
)

// server is a store on a clock that the test sets. While it is away it applies nothing, and
// it may lose some questions and some answers.
type server struct {
	backends.Store
	clock   atomic.Int64
	away    atomic.Bool
	batches atomic.Int64 // that it was asked
	ops     atomic.Int64
	after   func() // is called before an answer; may be nil
	rnd     *rand.Rand
	percent int // of the calls that are lost
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{}
	s.clock.Store(start)
	m, err := memory.New(memory.Options{MaxKeys: 1_000_000, Now: s.clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	s.Store = m
	return s
}

func (s *server) Now() int64 { return s.clock.Load() }

func (s *server) pass(d time.Duration) { s.clock.Add(d.Microseconds()) }

func (s *server) Apply(ctx context.Context, b *backends.Batch) error {
	s.batches.Add(1)
	s.ops.Add(int64(len(b.Ops)))
	lost := s.percent > 0 && s.rnd.IntN(100) < s.percent
	if s.away.Load() || lost && s.rnd.IntN(2) == 0 {
		return b.Fail(backends.ErrUnavailable)
	}
	err := s.Store.Apply(ctx, b)
	if s.after != nil {
		s.after()
	}
	if lost {
		return b.Fail(backends.ErrUnavailable)
	}
	return err
}

// queued is background work that has not run yet.
type queued []func() error

func (q *queued) add(work func() error) bool {
	*q = append(*q, work)
	return true
}

// run does the work, and the work that it leads to.
func (q *queued) run() {
	for len(*q) > 0 {
		work := (*q)[0]
		*q = (*q)[1:]
		_ = work()
	}
}

// replica is a process: it asks the server, and decides alone while the server is away.
type replica struct {
	t testing.TB
	*near.Store
	count atomic.Int64 // of replicas
	work  queued
}

func newReplica(t testing.TB, s backends.Store, replicas int) *replica {
	t.Helper()
	return newReplicaWith(t, s, replicas, near.Options{})
}

func newReplicaWith(t testing.TB, s backends.Store, replicas int, o near.Options) *replica {
	t.Helper()
	r := &replica{t: t}
	r.count.Store(int64(replicas))
	o.Timeout, o.Replicas = time.Second, func() int { return int(r.count.Load()) }
	if o.Go == nil {
		o.Go = r.work.add
	}
	r.Store = near.New(s, o)
	return r
}

// Step sweeps once and does the background work.
func (r *replica) Step() {
	r.Sweep()
	r.work.run()
}

func limit(t testing.TB, spec algorithms.Spec) *algorithms.Limit {
	t.Helper()
	if spec.Window == 0 {
		spec.Window = time.Minute
	}
	l, err := algorithms.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// batchOf is a batch of one charge of each key.
func batchOf(l *algorithms.Limit, c algorithms.Charge, keys ...string) *backends.Batch {
	b := &backends.Batch{Ops: make([]backends.Op, len(keys)), Replies: make([]backends.Reply, len(keys))}
	for i, key := range keys {
		l.Plan(&b.Ops[i], algorithms.Identity{ID: []byte(key)}, c)
	}
	return b
}

// local is a charge that may be decided without the store.
func local(l *algorithms.Limit, key string, c algorithms.Charge) *backends.Batch {
	b := batchOf(l, c, key)
	b.Ops[0].IfUndecided = backends.Local
	return b
}

// ask decides a charge as the service does.
func (r *replica) ask(l *algorithms.Limit, key string, c algorithms.Charge) algorithms.Decision {
	r.t.Helper()
	c.Now = r.Now()
	b := local(l, key, c)
	if err := r.Apply(context.Background(), b); err != nil {
		r.t.Fatal(err)
	}
	return l.Judge(&b.Ops[0], &b.Replies[0])
}

// hits makes n hits one after the other and returns how many were admitted.
func (r *replica) hits(l *algorithms.Limit, key string, n int) (admitted int) {
	r.t.Helper()
	for range n {
		if r.ask(l, key, algorithms.Charge{Cost: 1}).Allowed {
			admitted++
		}
	}
	return admitted
}

// left is the number of hits that remain in the server's cell.
func (r *replica) left(l *algorithms.Limit, key string) int64 {
	r.t.Helper()
	return r.ask(l, key, algorithms.Charge{}).Remaining
}

// steer resets the cell, or grants hits to it if there are any.
func (r *replica) steer(l *algorithms.Limit, key string, hits int64) {
	r.t.Helper()
	b := batchOf(l, algorithms.Charge{Now: r.Now()}, key)
	if b.Ops[0] = b.Ops[0].Reset(); hits > 0 {
		l.Grant(&b.Ops[0], hits)
	}
	if err := r.Apply(context.Background(), b); err != nil {
		r.t.Fatal(err)
	}
}
