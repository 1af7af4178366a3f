package algorithms_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// settling is a limit with reservations as the documents define it, computed from all charges
// so far.
type settling struct {
	algorithms.Spec
	window, ttl int64
	charges     []hit // what is given back to a log or a part is taken off its charge
	held        map[string]*holding
}

// holding is a reservation.
type holding struct {
	hits, at, ends int64
	settled        bool
}

// part is the number of the window, or of the part of it, in which a time lies.
func (m *settling) part(at int64) int64 {
	return at * int64(max(m.Precision, 1)) / m.window
}

// counts reports whether what was charged at a time can be given back at now.
func (m *settling) counts(at, now int64) bool {
	switch {
	case m.Precision > 0:
		return m.part(at) >= m.part(now)-int64(m.Precision)
	case m.Strategy == algorithms.SlidingLog || m.Strategy == algorithms.Concurrency:
		return at > now-m.window
	case m.Strategy.HasBurst():
		return true
	}
	return m.part(at) == m.part(now)
}

// room is how far the hits in use at now are below the limit, in parts of unit of a hit.
func (m *settling) room(now int64) (room, unit int64) {
	limit := int64(m.Requests)
	switch {
	case m.Strategy.HasBurst():
		unit = m.window
		full, at := int64(m.Burst)*unit, now
		room = full
		for i, h := range m.charges {
			if i > 0 {
				room = min(full, room+(h.at-at)*limit)
			}
			room, at = min(full, room-h.cost), h.at
		}
		return min(full, room+(now-at)*limit), unit
	case m.Overdraft > 0 && len(m.charges) > 0:
		used, window := int64(0), m.part(m.charges[0].at)
		for _, h := range append(slices.Clone(m.charges), hit{at: now}) {
			for ; window < m.part(h.at); window++ {
				used = max(0, used-limit)
			}
			used += h.cost
		}
		return limit - used, 1
	case m.Strategy == algorithms.SlidingWindow && m.Precision == 0:
		before := inBucket(m.charges, now/m.window-1, m.window) * (m.window - now%m.window)
		limit -= (before + m.window - 1) / m.window
	}
	for _, h := range m.charges {
		if m.counts(h.at, now) {
			limit -= h.cost
		}
	}
	return limit, 1
}

// charge charges hits as far as there is room for them.
func (m *settling) charge(now, hits int64) {
	room, unit := m.room(now)
	debt := int64(m.Overdraft) * unit
	if cost := min(hits*unit, max(0, room+debt)); cost > 0 {
		m.charges = append(m.charges, hit{now, cost})
	}
}

// giveBack gives back hits that were charged at a time.
func (m *settling) giveBack(at, now, hits int64) {
	switch _, unit := m.room(now); {
	case !m.counts(at, now):
	case m.Strategy.HasBurst() || m.Strategy == algorithms.FixedWindow || m.Strategy == algorithms.SlidingWindow && m.Precision == 0:
		m.charges = append(m.charges, hit{now, -hits * unit})
	default:
		for i := range m.charges {
			if h := &m.charges[i]; h.at == at || m.Precision > 0 && m.part(h.at) == m.part(at) {
				take := min(hits, h.cost)
				h.cost -= take
				hits -= take
			}
		}
	}
}

// call decides a call with an ID, or without one if that is "".
func (m *settling) call(now int64, id string, hits int64, refund bool) (allowed bool, state backends.HoldState) {
	if m.Reserve.GiveBack {
		var over []*holding
		for _, h := range m.held {
			if now >= h.ends && !h.settled {
				over = append(over, h)
			}
		}
		slices.SortFunc(over, func(a, b *holding) int { return cmp.Compare(a.ends, b.ends) })
		for _, h := range over {
			m.giveBack(h.at, now, h.hits)
			h.settled = true
		}
	}
	ends := now + m.ttl
	if part := m.ttl / 64; m.Reserve.GiveBack {
		ends = (ends + part - 1) / part * part
	}
	h := m.held[id]
	switch {
	case h == nil || now >= h.ends:
		if refund {
			return true, backends.NoHold
		}
		room, unit := m.room(now)
		if allowed = room >= hits*unit; m.Overdraft > 0 {
			allowed = room >= unit
		}
		if allowed || m.Overdraft > 0 && id == "" {
			m.charge(now, hits)
		}
		if allowed && id != "" && hits > 0 {
			m.held[id] = &holding{hits: hits, at: now, ends: ends}
			return true, backends.Held
		}
		return allowed, backends.NoHold
	case h.settled:
		return true, backends.Unchanged
	case refund:
		m.giveBack(h.at, now, h.hits)
	case hits < h.hits:
		m.giveBack(h.at, now, h.hits-hits)
	default:
		m.charge(now, hits-h.hits)
	}
	h.ends, h.settled = ends, true
	return true, backends.Settled
}

// settleSpecs are limits of 10 in 10 s, of every strategy that has reservations.
func settleSpecs() (specs []algorithms.Spec) {
	for _, spec := range []algorithms.Spec{
		{}, {Overdraft: 15}, {Overdraft: 1000}, {Strategy: algorithms.SlidingWindow}, {Strategy: algorithms.SlidingWindow, Precision: 7},
		{Strategy: algorithms.SlidingLog}, {Strategy: algorithms.Concurrency},
		{Strategy: algorithms.TokenBucket, Burst: 12}, {Strategy: algorithms.GCRA, Burst: 7, Overdraft: 30}, {Strategy: algorithms.LeakyBucket, Burst: 3},
	} {
		spec.Requests, spec.Window = 10, 10*time.Second
		for _, spec.Reserve = range []algorithms.Reserve{{TTL: 3 * time.Second}, {TTL: 25 * time.Second}, {TTL: 4 * time.Second, GiveBack: true}, {TTL: 32 * time.Second, GiveBack: true}} {
			specs = append(specs, spec)
		}
	}
	return specs
}

// playSettlements compares a sequence of calls with the model. Each takes three bytes: the time
// since the call before, the ID and whether it is a cancellation, and the hits. Without an
// overdraft the hits in use never exceed the limit.
func playSettlements(t *testing.T, spec algorithms.Spec, calls []byte) {
	l, c, now, told := mustNew(t, spec), newCells(), epoch, ""
	m := settling{Spec: spec, window: spec.Window.Microseconds(), ttl: spec.Reserve.TTL.Microseconds(), held: map[string]*holding{}}
	for ; len(calls) >= 3; calls = calls[3:] {
		now += int64(calls[0]) * int64(calls[0]) * 1000 / 4 * 4
		id, hits, refund := "", int64(calls[2]%16), calls[1] >= 230
		if n := calls[1] % 8; n > 0 {
			id = fmt.Sprintf("%016d", n)
		} else {
			refund = false
		}
		b := backends.Batch{Ops: make([]backends.Op, 1), Replies: make([]backends.Reply, 1)}
		l.Plan(&b.Ops[0], algorithms.Identity{ID: []byte("d|k")}, algorithms.Charge{Now: now, Cost: uint64(hits), Refund: refund, Reservation: id, AdmittedOnly: true})
		_ = c.Apply(context.Background(), &b) // never fails
		d, state := l.Judge(&b.Ops[0], &b.Replies[0]), b.Replies[0].HoldState()
		allowed, want := m.call(now, id, hits, refund)
		room, unit := m.room(now)
		told += fmt.Sprintf("%v: ID %s, %d hits, refund %v: allowed %v, %v, %d of %d remain\n",
			time.Duration(now-epoch)*time.Microsecond, id, hits, refund, allowed, want, room, unit)
		if d.Allowed != allowed || state != want || d.Remaining != max(0, room)/unit {
			t.Fatalf("%+v: got allowed %v, %v, %d remain; want\n%s", spec, d.Allowed, state, d.Remaining, told)
		}
		if spec.Overdraft == 0 && room < 0 && spec.Strategy != algorithms.SlidingWindow || room < -int64(spec.Overdraft)*unit && spec.Strategy != algorithms.SlidingWindow {
			t.Fatalf("%+v: more hits are in use than may be:\n%s", spec, told)
		}
	}
}

// TestSettlementsAgainstModel plays random sequences of reservations and settlements.
func TestSettlementsAgainstModel(t *testing.T) {
	rng := testenv.Random(t)
	for _, spec := range settleSpecs() {
		for range 100 {
			calls := make([]byte, 3*60)
			for i := range calls {
				calls[i] = byte(rng.IntN(256))
				if i%3 == 0 {
					calls[i] %= byte(1 + rng.IntN(80))
				}
			}
			playSettlements(t, spec, calls)
		}
	}
}

// FuzzSettlements plays any sequence of reservations and settlements on each limit.
func FuzzSettlements(f *testing.F) {
	for i := range settleSpecs() {
		f.Add(uint8(i), []byte{0, 1, 4, 10, 2, 5, 10, 1, 1, 10, 2, 15, 60, 231, 3, 90, 3, 6, 0, 231, 1, 0, 0, 9})
	}
	f.Fuzz(func(t *testing.T, which uint8, calls []byte) {
		specs := settleSpecs()
		playSettlements(t, specs[int(which)%len(specs)], calls)
	})
}
