package algorithms

import (
	"fmt"
	"time"

	"example.org/rls/pkg/backends"
)

const (
	maxShare    = Whole / 2
	shortestTTL = 10 * time.Millisecond
	longestTTL  = 10 * time.Second
)

// prepareLease checks the lease and derives the values that operations have.
func (l *Limit) prepareLease() error {
	if l.Lease == (Lease{}) {
		return nil
	}
	whole, name := uint32(l.Capacity()), "requests_per_unit"
	if l.row.burst != nil {
		name = "burst"
	}
	share := l.Lease.Share.floor(whole)
	switch {
	case l.Overdraft > 0:
		return &SpecError{"lease", "has no meaning with overdraft: each charge has to see the debt"}
	case l.Reserve.TTL > 0:
		return &SpecError{"lease", "has no meaning with reserve: a settlement has to find its reservation in the store"}
	case l.Strategy == Concurrency:
		return &SpecError{"lease", "has no meaning with concurrency: a slot that is held ahead is a slot that is taken"}
	case l.Extend:
		return &SpecError{"lease", "has no meaning with `extend`: each hit has to move the window's end"}
	case l.MaxDelay > 0:
		return &SpecError{"lease", "has no meaning with max_delay: a turn in the queue cannot be held"}
	case l.Lease.TTL < shortestTTL || l.Lease.TTL > longestTTL:
		return &SpecError{"lease.ttl", fmt.Sprintf("%v is out of range: want %v to %v", l.Lease.TTL, shortestTTL, longestTTL)}
	case l.Lease.Share > maxShare:
		return &SpecError{"lease.share", fmt.Sprintf("%s is more than half of the limit; want at most 50%%, so that other processes have a part", l.Lease.Share)}
	case share == 0 && maxShare.floor(whole) == 0:
		return &SpecError{"lease", fmt.Sprintf("no share of %s %d is as much as one hit; leave lease out", name, whole)}
	case share == 0:
		least := (Whole + Percent(whole) - 1) / Percent(whole)
		return &SpecError{"lease.share", fmt.Sprintf("%s of %s %d is less than one hit; want at least %s, or no lease", l.Lease.Share, name, whole, least)}
	}
	l.cell.Lease = &backends.Lease{Share: int64(share), TTL: l.Lease.TTL.Microseconds(), Limit: int64(whole)}
	return nil
}
