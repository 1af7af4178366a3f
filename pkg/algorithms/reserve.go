package algorithms

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	shortestHold = time.Second
	longestHold  = 24 * time.Hour
)

// checkReserve refuses limits that cannot hold hits.
func (l *Limit) checkReserve() error {
	switch {
	case l.Reserve == Reserve{}:
		return nil
	case l.Reserve.TTL < shortestHold || l.Reserve.TTL > longestHold:
		return &SpecError{"reserve.ttl", fmt.Sprintf("%v is out of range: want 1s to 24h", l.Reserve.TTL)}
	case l.MaxDelay > 0:
		return &SpecError{"reserve", "has no meaning with max_delay: a turn in the queue cannot be held"}
	case l.FromFirstHit:
		return &SpecError{"reserve", "has no meaning with from_first_hit: a reservation would begin the window"}
	}
	return nil
}

// CheckHold returns why callers cannot hold hits of l on demand, or nil if they can.
func (l *Limit) CheckHold() error {
	switch {
	case l.MaxDelay > 0:
		return errors.New("max_delay: a turn in the queue cannot be held")
	case l.FromFirstHit:
		return errors.New("window: from_first_hit: a hold would begin the window")
	case l.Lease != Lease{}:
		return errors.New("lease: a hold has to be seen by every process, and a lease is decided without the store")
	case l.Reserve.TTL > 0 && !l.Reserve.GiveBack:
		return errors.New("reserve: its reservations stay charged, and a hold comes back; `on_expiry: give_back` would be right")
	}
	return nil
}

// prepareOnDemand derives the constants of operations where callers may hold hits on demand: a
// charge beyond a bucket leaves debt, and hits that are held leave none.
func (l *Limit) prepareOnDemand() {
	l.onDemand = l.cell
	if l.onDemand.Debt = (backends.Amount{}); l.row.kind == backends.Meter && l.Overdraft == 0 && l.MaxDelay == 0 {
		l.onDemand.Full = l.onDemand.Full.Add(l.intervals(l.fullDebt()), l.cell.Den)
	}
}

// holds stands behind the key of a cell in the keys of its reservations, and a | and their id behind it.
const holds = "|hold"

// IsReservation reports whether a key of a store is that of a reservation, and of no counter.
func IsReservation(key string) bool { return strings.Contains(key, holds+"|") }

// reserve makes op, a planned charge, one that makes or settles a reservation, or one that
// sees the reservations of others lapse.
func (l *Limit) reserve(op *backends.Op, id Identity, c Charge) {
	if id.Longest > 0 && l.Overdraft == 0 {
		op.Limit = &l.onDemand
	}
	onDemand := id.Longest > 0 && l.CheckHold() == nil
	if l.Reserve.TTL == 0 && !onDemand {
		return
	}
	ttl := l.Reserve.TTL.Microseconds()
	if (ttl > 0 || c.Reservation != "") && op.Verb == backends.Count {
		op.Verb = backends.Charge // the work of a denied hit is not done
	}
	key, _ := l.key(id, -1)
	op.Hold = &backends.Hold{Key: key + holds, ID: c.Reservation, TTL: ttl, GiveBack: l.Reserve.GiveBack}
	if !onDemand {
		if c.Beyond {
			op.Hold.ID = ""
		}
		return
	}
	op.Hold.GiveBack = true
	op.Hold.TTL = cmp.Or(c.TTL, ttl, id.Longest)
	op.Hold.Known = c.Beyond && c.Reservation != ""
	if c.TTL > 0 && l.Overdraft > 0 {
		op.Limit = &l.onDemand
	}
}

// chargeBeyond makes op, a planned charge, one that is made whatever remains. The next
// operation on a bucket lowers it to [backends.Op.Furthest].
func (l *Limit) chargeBeyond(op *backends.Op) {
	*op = op.Unleased()
	verb := backends.Fill
	switch {
	case op.Debt != backends.Amount{}:
		op.Max = op.Max.Add(op.Debt, op.Den)
	case op.Kind == backends.Meter && op.Hold != nil:
		op.Max = op.Furthest()
	default:
		verb, op.Max = backends.Charge, backends.NoMax
	}
	if !op.Verb.GivesBack() {
		op.Verb = verb
	}
}

// Account is the hits of a reservation and of an overdraft.
type Account struct {
	// Reservation is "held" if the operation has made a reservation, "settled" if it has settled
	// or cancelled one, "unchanged" if that was done before, and else "".
	Reservation string
	// Charged is the number of hits that the operation has charged; a settlement charges the hits
	// beyond the reserved ones. GivenBack is the number of reserved hits that a settlement gave
	// back. Uncharged is the number of hits beyond the reserved ones for which there was no room.
	Charged, GivenBack, Uncharged int64
	// Cut are the hits beyond the debt of an overdraft, which were not charged.
	Cut int64
}

var reservations = [...]string{backends.NoHold: "", backends.Held: "held", backends.Settled: "settled", backends.Unchanged: "unchanged"}

// Account tells what r, the reply to op, a planned charge of cost hits, says of a reservation and
// an overdraft. r.Account must not be nil.
func (l *Limit) Account(op *backends.Op, r *backends.Reply, cost uint64) *Account {
	a, held := &Account{Reservation: reservations[r.Account.Hold]}, l.hits(op, r.Account.Held)
	cut := int64(min(cost, uint64(backends.MaxCost))) - l.hits(op, op.By.Sub(r.Account.Cut, op.Den))
	switch {
	case r.Account.Hold == backends.Held:
		a.Cut = cut
		a.Charged = int64(cost) - cut
	case r.Account.Hold == backends.Unchanged:
	case r.Account.Hold != backends.Settled:
		a.Cut = cut
	case op.Verb.GivesBack():
		a.GivenBack = held
	case int64(cost) > held:
		a.Charged, a.Uncharged = int64(cost)-held-cut, cut
		if l.overdraws() {
			a.Uncharged, a.Cut = 0, cut
		}
	default:
		a.GivenBack = held - int64(cost) - l.hits(op, r.Account.Cut)
	}
	return a
}

// hits is how many whole hits an amount in the cell of op stands for.
func (l *Limit) hits(op *backends.Op, amount backends.Amount) int64 {
	return amount.Units(op.Unit, op.Den)
}
