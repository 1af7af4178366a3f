package status

import (
	"sync/atomic"

	"example.org/rls/pkg/descriptors"
)

const (
	// maxHistories bounds the rules that have a sparkline, and with them the memory:
	// about 4 MiB. Rules that get requests later have rates and totals.
	maxHistories = 4096
	// binSeconds is the time that one point of a rule's sparkline stands for.
	binSeconds = 15
	bins       = historySeconds / binSeconds
)

// ends counts descriptors by how their requests' limits decided.
type ends = [kinds]uint32

// tally is the counts of one rule. counts is for everybody, Status.mu guards the rest.
type tally struct {
	counts [kinds]atomic.Uint64
	seen   [kinds]uint64 // the counts at the last advance
	recent ring[ends]    // of seconds
	bins   ring[ends]    // without slots if the rule has no history
}

// tally finds or makes the counts of a rule.
func (s *Status) tally(r *descriptors.Rule) *tally {
	rules := s.rules.Load()
	if t, ok := rules.Load(r); ok {
		return t.(*tally)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[r.Path]
	if t == nil {
		t = &tally{recent: newRing[ends](rateSeconds)}
		if s.histories < maxHistories {
			s.histories++
			t.bins = newRing[ends](bins)
		}
		s.tallies[r.Path] = t
	}
	rules.Store(r, t)
	return t
}

// advance moves the counts since the last call into the second now.
func (t *tally) advance(now int64) {
	var more ends
	for kind := range t.counts {
		n := t.counts[kind].Load()
		more[kind] = uint32(n - t.seen[kind])
		t.seen[kind] = n
	}
	if more == (ends{}) {
		return // to clears the seconds that were left out when it is called next
	}
	add(t.recent.to(now), &more)
	if t.bins.slots != nil {
		add(t.bins.to(now/binSeconds), &more)
	}
}

func add(to, more *ends) {
	for kind, n := range more {
		to[kind] += n
	}
}

// rates are the descriptors per second of the last rateSeconds, by how they ended, as of
// the second last. up is the age of the process in seconds.
func (t *tally) rates(last, up int64) (rates [kinds]float64) {
	over := float64(min(max(up, 1), rateSeconds))
	t.recent.to(last)
	for e := range t.recent.all() {
		for kind, n := range e {
			rates[kind] += float64(n) / over
		}
	}
	return rates
}
