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
		return &SpecError{"reserve.ttl", fmt.Sprintf("%v is out of range: want %v to %v", l.Reserve.TTL, shortestHold, longestHold)}
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
	if c.Reservation == "" && !l.Reserve.GiveBack {
		return
	}
	key, _ := l.key(id, -1)
	ttl := l.Reserve.TTL.Microseconds()
	op.Hold = &backends.Hold{Key: key + "|hold", ID: c.Reservation, TTL: ttl, Longest: ttl, GiveBack: l.Reserve.GiveBack}
}
