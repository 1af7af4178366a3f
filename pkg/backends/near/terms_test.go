package near_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// used is the hits that the server has in use, debt included.
func (r *replica) used(s *server, l *algorithms.Limit, key string) int64 {
	r.t.Helper()
	b := local(l, key, algorithms.Charge{Now: s.clock.Load()})
	b.Ops[0] = b.Ops[0].Look()
	if err := s.Store.Apply(context.Background(), b); err != nil {
		r.t.Fatal(err)
	}
	return l.Used(&b.Ops[0], &b.Replies[0])
}

func (r *replica) wantUsed(s *server, l *algorithms.Limit, key string, want int64) {
	r.t.Helper()
	if got := r.used(s, l, key); got != want {
		r.t.Errorf("%s: the server has %d hits in use, want %d", key, got, want)
	}
}

// back has the server answer again, and the replica do its background work.
func (r *replica) back(s *server) {
	s.away.Store(false)
	r.Step()
	r.Step()
}

const (
	firstID  = "0123456789abcdef"
	secondID = "fedcba9876543210"
)

// TestDebtIsOwed: without the store each charge of an overdraft is counted, denied ones, too,
// up to the debt. The server gets all of them, less what windows and rates have paid.
func TestDebtIsOwed(t *testing.T) {
	for _, spec := range []algorithms.Spec{
		{Requests: 10, Overdraft: algorithms.FullOverdraft},
		{Strategy: algorithms.TokenBucket, Requests: 10, Overdraft: algorithms.FullOverdraft},
	} {
		srv := newServer(t)
		l, r := limit(t, spec), newReplica(t, srv, 1)
		r.ask(l, "k", algorithms.Charge{Cost: 4})
		srv.away.Store(true)
		if d := r.ask(l, "k", algorithms.Charge{Cost: 31}); !d.Allowed || d.Remaining != 0 {
			t.Errorf("%+v: a charge while hits remain gets %+v", spec, d)
		}
		if d := r.ask(l, "k", algorithms.Charge{Cost: 5}); d.Allowed || d.RetryAfter <= 0 {
			t.Errorf("%+v: a charge in debt gets %+v", spec, d)
		}
		srv.pass(time.Minute)
		r.back(srv)
		r.wantUsed(srv, l, "k", 30)
		if d := r.ask(l, "k", algorithms.Charge{}); d.Allowed && spec.Strategy == algorithms.TokenBucket {
			t.Errorf("%+v: a check in debt gets %+v", spec, d)
		}
		srv.pass(3 * time.Minute)
		r.wantUsed(srv, l, "k", 0)

		spec.Overdraft = 7
		l = limit(t, spec)
		srv.away.Store(true)
		for range 3 {
			r.ask(l, "little", algorithms.Charge{Cost: 12})
		}
		r.wantUsed(srv, l, "little", 0)
		srv.away.Store(false)
		newReplica(t, srv, 1).ask(l, "little", algorithms.Charge{Cost: 16}) // before r is told
		r.back(srv)
		r.wantUsed(srv, l, "little", 17)
	}
}

// TestDebtOfAShare: a replica lets a charge pass while a hit of its share remains, and says
// when one does again.
func TestDebtOfAShare(t *testing.T) {
	for _, spec := range []algorithms.Spec{
		{Requests: 10, Overdraft: algorithms.FullOverdraft},
		{Strategy: algorithms.TokenBucket, Requests: 10, Overdraft: algorithms.FullOverdraft},
	} {
		srv := newServer(t)
		srv.away.Store(true)
		l, r := limit(t, spec), newReplica(t, srv, 4)
		if d := r.ask(l, "k", algorithms.Charge{}); !d.Allowed || d.Remaining != 3 {
			t.Errorf("%+v: one of four has %+v, want 3 hits", spec, d)
		}
		passed := 0
		for range 8 {
			if r.ask(l, "k", algorithms.Charge{Cost: 1}).Allowed {
				passed++
			}
		}
		d := r.ask(l, "k", algorithms.Charge{})
		if passed != 3 || d.Allowed {
			t.Errorf("%+v: %d hits of one of four pass, want 3; then %+v", spec, passed, d)
		}
		srv.pass(d.RetryAfter - time.Microsecond)
		if d := r.ask(l, "k", algorithms.Charge{}); d.Allowed {
			t.Errorf("%+v: a check passes before retry_after: %+v", spec, d)
		}
		srv.pass(time.Microsecond)
		if d := r.ask(l, "k", algorithms.Charge{}); !d.Allowed {
			t.Errorf("%+v: a check after retry_after gets %+v", spec, d)
		}
	}
}

// TestPartsAreOwedOnce: the hits that the server has reported are not charged again, in any
// part of the window.
func TestPartsAreOwedOnce(t *testing.T) {
	l := limit(t, algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Precision: 6})
	for second := range 90 {
		srv := newServer(t)
		r := newReplica(t, srv, 1)
		r.ask(l, "k", algorithms.Charge{Cost: 5})
		srv.away.Store(true)
		srv.pass(time.Duration(second) * time.Second)
		before := r.used(srv, l, "k")
		if d := r.ask(l, "k", algorithms.Charge{Cost: 2}); !d.Allowed {
			t.Fatalf("after %d s: %+v", second, d)
		}
		r.back(srv)
		if got := r.used(srv, l, "k"); got != before+2 {
			t.Errorf("after %d s the server has %d hits, want %d", second, got, before+2)
		}
	}
}

// TestSlotsWhileAway: slots that are taken and given back while the store is away are so in the
// store when it is back, also slots that were taken in it before.
func TestSlotsWhileAway(t *testing.T) {
	srv := newServer(t)
	l, r := limit(t, algorithms.Spec{Strategy: algorithms.Concurrency, Requests: 5}), newReplica(t, srv, 1)
	r.hits(l, "k", 3)
	srv.away.Store(true)
	back := func(n uint64) { r.ask(l, "k", algorithms.Charge{Cost: n, Refund: true}) }
	if n := r.hits(l, "k", 5); n != 2 {
		t.Errorf("%d slots are taken, want the 2 that were free", n)
	}
	back(4)
	if n := r.left(l, "k"); n != 4 {
		t.Errorf("%d slots are free, want 4", n)
	}
	r.back(srv)
	r.wantUsed(srv, l, "k", 1)

	r.hits(l, "all", 3)
	srv.away.Store(true)
	r.ask(l, "all", algorithms.Charge{Cost: 3, Refund: true})
	srv.pass(10 * time.Second)
	r.Step()
	r.back(srv)
	r.wantUsed(srv, l, "all", 0)

	srv.away.Store(true)
	back(1)
	r.hits(l, "k", 2)
	srv.pass(59 * time.Second)
	r.back(srv)
	r.wantUsed(srv, l, "k", 2)
	srv.away.Store(true)
	back(1)
	srv.pass(time.Hour) // the slots have ended
	r.hits(l, "k", 1)
	r.back(srv)
	r.wantUsed(srv, l, "k", 1)
}

// muted is a server that applies refunds and loses the answers.
type muted struct{ *server }

func (m muted) Apply(ctx context.Context, b *backends.Batch) error {
	err := m.server.Apply(ctx, b)
	if b.Ops[0].Verb.GivesBack() {
		return b.Fail(backends.ErrUnavailable)
	}
	return err
}

// TestSlotsAreGivenBackOnce, also if the answer to that is lost.
func TestSlotsAreGivenBackOnce(t *testing.T) {
	srv := newServer(t)
	l, r := limit(t, algorithms.Spec{Strategy: algorithms.Concurrency, Requests: 5}), newReplica(t, muted{srv}, 1)
	r.hits(l, "k", 4)
	srv.away.Store(true)
	r.ask(l, "k", algorithms.Charge{Cost: 1, Refund: true})
	srv.away.Store(false)
	for range 10 {
		r.Step()
	}
	r.wantUsed(srv, l, "k", 3)
}

// TestReservationsWhileAway: without the store each call with an ID is charged as a hit, and
// nothing is settled or cancelled. No hit is given away.
func TestReservationsWhileAway(t *testing.T) {
	for _, spec := range []algorithms.Spec{
		{Requests: 100},
		{Requests: 100, Overdraft: algorithms.FullOverdraft},
		{Strategy: algorithms.TokenBucket, Requests: 100, Window: 24 * time.Hour},
		{Strategy: algorithms.SlidingLog, Requests: 100},
		{Strategy: algorithms.Concurrency, Requests: 100},
	} {
		for _, spec.Reserve = range []algorithms.Reserve{algorithms.DefaultReserve, {TTL: time.Minute, GiveBack: true}} {
			srv := newServer(t)
			l, r := limit(t, spec), newReplica(t, srv, 1)
			ask := func(id string, hits uint64, refund bool) (algorithms.Decision, *backends.Reply) {
				b := local(l, "k", algorithms.Charge{Now: r.Now(), Cost: hits, Refund: refund, Reservation: id})
				if err := r.Apply(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				return l.Judge(&b.Ops[0], &b.Replies[0]), &b.Replies[0]
			}
			ask(firstID, 40, false)
			srv.away.Store(true)
			if d, reply := ask(firstID, 10, false); !d.Allowed || reply.HoldState() != backends.NoHold {
				t.Errorf("%+v: a settlement without the store gets %+v, %+v", spec, d, reply.Account)
			}
			if _, reply := ask(secondID, 20, false); reply.HoldState() != backends.NoHold {
				t.Errorf("%+v: a reservation without the store gets %+v", spec, reply.Account)
			}
			if d, _ := ask(secondID, 1000, true); !d.Allowed || d.Remaining != 30 {
				t.Errorf("%+v: a cancellation without the store gets %+v, want 30 that remain", spec, d)
			}
			r.back(srv)
			r.wantUsed(srv, l, "k", 70)
			if _, reply := ask(firstID, 5, false); reply.HoldState() != backends.Settled { // the store has it
				t.Errorf("%+v: a settlement gets %+v", spec, reply.Account)
			}
			r.wantUsed(srv, l, "k", 35)
			if _, reply := ask(secondID, 5, false); reply.HoldState() != backends.Held { // it is new to the store
				t.Errorf("%+v: a reservation gets %+v", spec, reply.Account)
			}
			r.wantUsed(srv, l, "k", 40)

			srv.away.Store(true)
			full := limit(t, algorithms.Spec{Requests: 1})
			r.hits(full, "other", 1)
			b := local(full, "other", algorithms.Charge{Now: r.Now(), Cost: 1})
			b.Ops, b.Replies = append(b.Ops, local(l, "k", algorithms.Charge{Now: r.Now(), Cost: 9, Reservation: firstID}).Ops...), make([]backends.Reply, 2)
			b.AllOrNothing = true
			if _ = r.Apply(t.Context(), b); !b.Refused {
				t.Errorf("%+v: a full limit refuses nothing", spec)
			}
			srv.pass(30 * time.Second)
			ask("", 2, false)
			srv.pass(40 * time.Second) // the hits of a log before have left it
			ask("", 3, false)
			ask("", 4, false)
			r.back(srv)
			want := map[string]int64{"fixed_window": 7, "token_bucket": 49, "sliding_log": 9, "concurrency": 9}[spec.Strategy.String()]
			if spec.Reserve.GiveBack && spec.Strategy == algorithms.TokenBucket {
				want -= 5 // nobody has settled them
			}
			r.wantUsed(srv, l, "k", want)
		}
	}
}

// TestOwedAfterACancellation: what is owed is charged as far as it fits, also if a cancellation
// was the last call that was decided here.
func TestOwedAfterACancellation(t *testing.T) {
	srv := newServer(t)
	l, r := limit(t, algorithms.Spec{Requests: 100, Reserve: algorithms.DefaultReserve}), newReplica(t, srv, 1)
	srv.away.Store(true)
	r.ask(l, "k", algorithms.Charge{Cost: 60, Reservation: firstID})
	r.ask(l, "k", algorithms.Charge{Cost: 1, Refund: true, Reservation: firstID})
	srv.away.Store(false)
	newReplica(t, srv, 1).ask(l, "k", algorithms.Charge{Cost: 80, Reservation: secondID}) // before r is told
	r.back(srv)
	r.wantUsed(srv, l, "k", 100)
}

// partly is a server that leaves the operations of some keys undecided.
type partly struct {
	*server
	gone map[string]bool // by the first letter of the key
}

func (h partly) Apply(ctx context.Context, b *backends.Batch) error {
	var rest backends.Part
	for i := range b.Ops {
		if h.gone[b.Ops[i].Key[:1]] {
			b.Replies[i] = backends.Reply{Err: backends.ErrUnavailable}
		} else {
			rest.Add(b, i)
		}
	}
	rest.AllOrNothing = b.AllOrNothing
	err := h.server.Apply(ctx, &rest.Batch)
	rest.Answer(b)
	return errors.Join(err, b.Err())
}

// TestReservationOfARefusedBatch: a reservation that the store has made is cancelled with its
// record if a limit that is decided without the store refuses the batch. A settlement and a
// charge of an overdraft stay.
func TestReservationOfARefusedBatch(t *testing.T) {
	reserve := algorithms.DefaultReserve
	for _, spec := range []algorithms.Spec{
		{Requests: 100, Reserve: reserve}, {Requests: 100, Reserve: reserve, Overdraft: algorithms.FullOverdraft},
		{Strategy: algorithms.GCRA, Requests: 1, Burst: 100, Window: 24 * time.Hour, Reserve: reserve},
		{Strategy: algorithms.Concurrency, Requests: 100, Reserve: reserve},
	} {
		srv := newServer(t)
		here := partly{srv, map[string]bool{}}
		l, full, r := limit(t, spec), limit(t, algorithms.Spec{Requests: 1}), newReplica(t, here, 1)
		ask := func(id string, hits uint64) *backends.Batch {
			b := local(l, "k", algorithms.Charge{Now: r.Now(), Cost: hits, Reservation: id})
			beside := local(full, "other", algorithms.Charge{Now: r.Now(), Cost: 1})
			b.Ops, b.Replies, b.AllOrNothing = append(b.Ops, beside.Ops...), make([]backends.Reply, 2), true
			if err := r.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			r.work.run()
			return b
		}
		if b := ask(firstID, 30); b.Refused || b.Replies[0].HoldState() != backends.Held {
			t.Fatalf("%+v: refused %v, %+v", spec, b.Refused, b.Replies[0])
		}
		here.gone["o"] = true
		ask(secondID, 10)
		if b := ask(secondID, 20); !b.Refused {
			t.Fatalf("%+v: a second hit on a limit of 1 passes", spec)
		}
		r.wantUsed(srv, l, "k", 30)
		b := local(l, "k", algorithms.Charge{Now: r.Now(), Cost: 7, Reservation: secondID})
		if _ = r.Apply(t.Context(), b); b.Replies[0].HoldState() != backends.Held {
			t.Errorf("%+v: the ID of a refused reservation is not new: %+v", spec, b.Replies[0].Account)
		}
		if b := ask(firstID, 10); b.Replies[0].HoldState() != backends.Settled {
			t.Errorf("%+v: a settlement in a refused batch: %+v", spec, b.Replies[0].Account)
		}
		r.wantUsed(srv, l, "k", 17)
		if spec.Overdraft > 0 {
			ask("", 100)
			r.wantUsed(srv, l, "k", 117)
		}
	}
}

// TestNoDenialThatMustBeCharged: memory answers no settlement, no cancellation and no charge
// of an overdraft, however full it knows the cells, by itself, in a group and in a batch that
// memory would refuse.
func TestNoDenialThatMustBeCharged(t *testing.T) {
	reserve := algorithms.DefaultReserve
	for _, tt := range []struct {
		spec algorithms.Spec
		ask  algorithms.Charge
		used int64 // after ask, once
	}{
		{algorithms.Spec{Requests: 10, Overdraft: 500}, algorithms.Charge{Cost: 5}, 16},
		{algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: 24 * time.Hour, Overdraft: 500}, algorithms.Charge{Cost: 5}, 16},
		{algorithms.Spec{Requests: 10, Reserve: reserve}, algorithms.Charge{Cost: 3, Reservation: firstID}, 3},
		{algorithms.Spec{Requests: 10, Reserve: reserve}, algorithms.Charge{Cost: 99, Refund: true, Reservation: firstID}, 0},
		{algorithms.Spec{Requests: 10, Reserve: reserve, Overdraft: 500}, algorithms.Charge{Cost: 13, Reservation: firstID}, 13},
		{algorithms.Spec{Strategy: algorithms.GCRA, Requests: 1, Burst: 10, Window: 24 * time.Hour, Reserve: reserve}, algorithms.Charge{Cost: 3, Reservation: firstID}, 3},
		{algorithms.Spec{Strategy: algorithms.Concurrency, Requests: 10, Reserve: reserve}, algorithms.Charge{Cost: 3, Reservation: firstID}, 3},
	} {
		for _, way := range []string{"alone", "group", "all or nothing"} {
			srv := newServer(t)
			r := newDenying(t, srv)
			l, full := limit(t, tt.spec), limit(t, algorithms.Spec{Requests: 1, Strategy: algorithms.TokenBucket, Window: 24 * time.Hour})
			first := algorithms.Charge{Cost: 10}
			if tt.spec.Reserve.TTL > 0 {
				first.Reservation = firstID
			}
			r.ask(l, "k", first)
			before := algorithms.Charge{Cost: 1}
			if tt.spec.Reserve.TTL > 0 {
				before.Reservation = secondID
			}
			for range 2 {
				if d := r.ask(l, "k", before); d.Allowed {
					t.Fatalf("%+v: a full cell lets a hit pass: %+v", tt.spec, d)
				}
				if tt.spec.Overdraft > 0 && tt.spec.Reserve.TTL == 0 {
					break // this charge has been made
				}
			}
			r.hits(full, "full", 3)
			c := tt.ask
			c.Now = r.Now()
			b := local(l, "k", c)
			if way != "alone" {
				beside := local(full, "full", algorithms.Charge{Now: r.Now(), Cost: 1})
				b.Ops, b.Replies = append(beside.Ops, b.Ops...), make([]backends.Reply, 2)
				b.AllOrNothing = way == "all or nothing"
				if way == "group" {
					b.Ops[0].Group, b.Ops[1].Group = 1, 1
				}
			}
			if err := r.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if got := r.used(srv, l, "k"); got != tt.used {
				t.Errorf("%+v, %+v, %s: %d hits are in use, want %d", tt.spec, tt.ask, way, got, tt.used)
			}
		}
	}
}
