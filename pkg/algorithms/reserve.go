package algorithms

import (
	"fmt"
	"time"

	"example.org/rls/pkg/backends"
)

// Reserve says how long a reservation is held, and what becomes of one that nobody settles.
// The zero Reserve means that the limit has none.
type Reserve struct {
	TTL time.Duration // 1 s to 24 h
	// GiveBack: hits that nobody settles within TTL come back; else they stay charged.
	GiveBack bool
}

// DefaultReserve is the Reserve of a limit that names no ttl.
var DefaultReserve = Reserve{TTL: 10 * time.Minute}

const (
	shortestHold = time.Second
	longestHold  = 24 * time.Hour
)

// String is the Reserve as it is written in rules.
func (r Reserve) String() string {
	switch {
	case r == Reserve{}:
		return ""
	case r.GiveBack:
		return fmt.Sprintf("{ttl: %s, on_expiry: give_back}", r.TTL)
	}
	return fmt.Sprintf("{ttl: %s}", r.TTL)
}

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

// reserve makes op, a planned charge, one that makes or settles a reservation.
func (l *Limit) reserve(op *backends.Op, id Identity, c Charge) {
	op.ChargeDenied = false // the work of a denied hit is not done
	key, _ := l.key(id, -1)
	ttl := l.Reserve.TTL.Microseconds()
	op.Hold = &backends.Hold{Key: key + "|hold", ID: c.Reservation, TTL: ttl, Longest: ttl, GiveBack: l.Reserve.GiveBack}
}

// Account is the hits of a reservation and of an overdraft.
type Account struct {
	// Reservation is "held" if the operation has made a reservation, "settled" if it has settled
	// or cancelled one, "unchanged" if that was done before, and else "".
	Reservation string
	// Held are the hits that were reserved before. Charged are the hits that the operation has
	// charged, of a settlement those beyond Held, GivenBack those that were given back, and Uncharged those of
	// the difference for which there was no room.
	Held, Charged, GivenBack, Uncharged int64
	// Cut are the hits beyond the debt of an overdraft, which were not charged.
	Cut int64
}

var reservations = [...]string{backends.NoHold: "", backends.Held: "held", backends.Settled: "settled", backends.Unchanged: "unchanged"}

// Account tells what r, the reply to op, a planned charge of cost hits, says of a reservation and an
// overdraft. It is nil if it says nothing.
func (l *Limit) Account(op *backends.Op, r *backends.Reply, cost uint64) *Account {
	if r.Account == nil {
		return nil
	}
	a := &Account{Reservation: reservations[r.Account.Hold], Held: l.hits(op, r.Account.Held)}
	cut := int64(min(cost, uint64(backends.MaxCost))) - l.hits(op, op.By.Sub(r.Account.Cut, op.Den))
	switch {
	case r.Account.Hold == backends.Held:
		a.Cut = cut
		a.Charged = int64(cost) - cut
	case r.Account.Hold == backends.Unchanged:
	case r.Account.Hold != backends.Settled:
		a.Cut = cut
	case op.Refund:
		a.GivenBack = a.Held
	case int64(cost) > a.Held:
		a.Charged, a.Uncharged = int64(cost)-a.Held-cut, cut
		if l.overdraws() {
			a.Uncharged, a.Cut = 0, cut
		}
	default:
		a.GivenBack = a.Held - int64(cost) - l.hits(op, r.Account.Cut)
	}
	return a
}

// hits is how many whole hits an amount in the cell of op stands for.
func (l *Limit) hits(op *backends.Op, amount backends.Amount) int64 {
	return amount.Units(op.Unit, op.Den)
}
